/*
 * Runs many commands, two at a time. The two processes that run them take commands as calls. If one of
 * these processes is killed, its caller gets an error.
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

/* A runner takes one command at a time. Its reply is the output, flagged with the status. */
static void run(pwk_segment *segment) {
    pwk_server *server = NULL;
    pwk_buffer command = PWK_BUFFER;
    pwk_request request;
    char part[4096];
    size_t len;
    must(pwk_server_new(segment, NULL, &server, &error));
    for (;;) {
        must(pwk_server_recv(server, PWK_NEVER, &command, &request, &error));
        char *text = strndup(command.data, command.len);
        FILE *output = popen(text, "r");
        while (output && (len = fread(part, 1, sizeof part, output)) > 0) {
            must(pwk_server_part(server, request.ticket, part, len, 0, PWK_NEVER, NULL, &error));
        }
        int status = output ? pclose(output) : -1;
        must(pwk_server_reply_message(server, request.ticket, NULL, 0, (uint32_t)status, NULL, &error));
        free(text);
    }
}

int main(void) {
    const char *commands[] = {"echo job 1", "echo job 2; exit 3", "echo job 3; kill -9 $$", "echo job 4"};
    enum { COUNT = 4, AT_A_TIME = 2 };
    pid_t runners[AT_A_TIME];
    uint64_t tickets[COUNT], ended;
    uint32_t status;
    pwk_segment *segment = NULL;
    pwk_client *client = NULL;
    pwk_buffer output = PWK_BUFFER;
    must(pwk_segment_anonymous(NULL, &segment, &error));
    for (int i = 0; i < AT_A_TIME; i++) {
        runners[i] = fork();
        if (runners[i] == 0) run(segment);
    }
    must(pwk_client_new(segment, NULL, &client, &error));
    for (int i = 0; i < COUNT; i++) {
        must(pwk_client_send(client, commands[i], strlen(commands[i]), PWK_NEVER, &tickets[i], &error));
    }
    for (int left = COUNT; left > 0; left--) {
        pwk_status got = pwk_client_recv_any_message(client, PWK_NEVER, &ended, &output, &status, &error);
        if (ended == 0) must(got); /* the wait has failed, and no call */
        int i = 0;
        while (tickets[i] != ended) i++;
        if (got != PWK_OK) printf("[%s] %s\n", commands[i], pwk_status_text(got)); /* its runner died */
        else if (WIFSIGNALED(status)) printf("[%s] killed by %d\n", commands[i], WTERMSIG(status));
        else printf("[%s] exit status %d\n", commands[i], WEXITSTATUS(status));
        printf("%.*s", (int)output.len, (char *)output.data);
    }
    for (int i = 0; i < AT_A_TIME; i++) kill(runners[i], SIGKILL);
    while (wait(NULL) > 0) continue;
    pwk_buffer_free(&output);
    pwk_client_free(client);
    pwk_segment_free(segment);
    return 0;
}
