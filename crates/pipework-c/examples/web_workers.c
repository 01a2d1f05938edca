/*
 * Web workers that share one model: a process of its own loads it, and takes all waiting requests as one
 * batch.
 */
#include <pipework.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static pwk_error error; /* of the last call that failed */

static void must(pwk_status status) {
    char text[256];
    if (status == PWK_OK) return;
    pwk_error_text(&error, text, sizeof text);
    fprintf(stderr, "%s\n", text);
    exit(1);
}

/* The first process that comes makes it. */
static pwk_segment *segment(const char *path) {
    pwk_segment *segment = NULL;
    must(pwk_segment_open_or_create(path, NULL, &segment, &error));
    return segment;
}

/* The model's process. */
static void model(const char *path) {
    pwk_server *server = NULL;
    pwk_buffer texts = PWK_BUFFER;
    pwk_request batch[32];
    size_t count;
    must(pwk_server_new(segment(path), NULL, &server, &error));
    for (;;) {
        /* All waiting requests, and those that come within two more milliseconds. */
        must(pwk_server_recv_many(server, 32, PWK_NEVER, 2000000, &texts, batch, &count, &error));
        for (size_t i = 0; i < count; i++) {
            char answer[32];
            const char *text = (const char *)texts.data + batch[i].offset;
            int words = 1;
            for (size_t at = 0; at < batch[i].len; at++) words += text[at] == ' ';
            snprintf(answer, sizeof answer, "%d words", words);
            must(pwk_server_reply(server, batch[i].ticket, answer, strlen(answer), &error));
        }
    }
}

/* The process of a web worker. */
static void worker(const char *path) {
    const char *text = "how many words";
    pwk_client *client = NULL;
    pwk_buffer answer = PWK_BUFFER;
    must(pwk_client_new(segment(path), NULL, &client, &error));
    must(pwk_client_call(client, text, strlen(text), pwk_in_ms(5000), &answer, &error));
    printf("process %d: %.*s\n", (int)getpid(), (int)answer.len, (char *)answer.data);
    exit(0);
}

int main(void) {
    enum { WORKERS = 8 };
    char path[64];
    pid_t workers[WORKERS];
    int status, failed = 0;
    snprintf(path, sizeof path, "/dev/shm/model-%d", (int)getpid());
    pid_t server = fork();
    if (server == 0) model(path);
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = fork();
        if (workers[i] == 0) worker(path);
    }
    for (int i = 0; i < WORKERS; i++) {
        if (waitpid(workers[i], &status, 0) < 0 || status != 0) failed++;
    }
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    unlink(path);
    return failed != 0;
}
