/* A worker that answers, and a caller that notices when it has been killed. */
#include <pipework.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static int fail(const pwk_error *error) {
    char text[256];
    pwk_error_text(error, text, sizeof text);
    return fprintf(stderr, "%s\n", text), 1;
}

/* Answers every request but the one that says "wait". */
static int serve(pwk_segment *segment) {
    pwk_error error;
    pwk_server *server = NULL;
    pwk_buffer data = PWK_BUFFER;
    pwk_request request;
    if (pwk_server_new(segment, NULL, &server, &error) != PWK_OK) return fail(&error);
    while (pwk_server_recv(server, PWK_NEVER, &data, &request, &error) == PWK_OK) {
        if (data.len == 4) pause();
        if (pwk_server_reply(server, request.ticket, data.data, data.len, &error) != PWK_OK) break;
    }
    return fail(&error);
}

int main(void) {
    pwk_error error;
    pwk_segment *segment = NULL;
    pwk_client *client = NULL;
    pwk_buffer reply = PWK_BUFFER;
    if (pwk_segment_anonymous(NULL, &segment, &error) != PWK_OK) return fail(&error);
    if (pwk_client_new(segment, NULL, &client, &error) != PWK_OK) return fail(&error);
    pid_t worker = fork();
    if (worker == 0) _exit(serve(segment));

    if (pwk_client_call(client, "hello", 5, pwk_in_ms(5000), &reply, &error) != PWK_OK) {
        return fail(&error);
    }
    printf("%.*s\n", (int)reply.len, (const char *)reply.data);

    /* It has not come back to take another: this one waits for it, and learns of its end. */
    alarm(10);
    if (fork() == 0) {
        usleep(200000);
        _exit(kill(worker, SIGKILL));
    }
    pwk_status status = pwk_client_call(client, "wait", 4, pwk_in_ms(5000), &reply, &error);
    printf("%s\n", pwk_status_text(status));

    pwk_buffer_free(&reply);
    pwk_client_free(client);
    pwk_segment_free(segment);
    while (wait(NULL) > 0) continue;
    return status != PWK_PEER_DIED;
}
