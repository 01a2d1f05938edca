/* A worker that answers, and a caller that notices when it has been killed. */
#include <pipework.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static int fail(const pw_error *error) {
    char text[256];
    pw_error_text(error, text, sizeof text);
    return fprintf(stderr, "%s\n", text), 1;
}

/* Answers every request but the one that says "wait". */
static int serve(pw_segment *segment) {
    pw_error error;
    pw_server *server = NULL;
    pw_buffer data = PW_BUFFER;
    pw_request request;
    if (pw_reqrep_server(segment, NULL, &server, &error) != PW_OK) return fail(&error);
    while (pw_server_recv(server, PW_NEVER, &data, &request, &error) == PW_OK) {
        if (data.len == 4) pause();
        if (pw_server_reply(server, request.ticket, data.data, data.len, 0, NULL, &error) != PW_OK) break;
    }
    return fail(&error);
}

int main(void) {
    pw_error error;
    pw_segment *segment = NULL;
    pw_client *client = NULL;
    pw_buffer reply = PW_BUFFER;
    if (pw_reqrep_anonymous(NULL, &segment, &error) != PW_OK) return fail(&error);
    if (pw_reqrep_client(segment, NULL, &client, &error) != PW_OK) return fail(&error);
    pid_t worker = fork();
    if (worker == 0) _exit(serve(segment));

    if (pw_client_call(client, "hello", 5, 0, pw_in_ms(5000), &reply, NULL, &error) != PW_OK) return fail(&error);
    printf("%.*s\n", (int)reply.len, (const char *)reply.data);

    /* It has not come back to take another: this one waits for it, and learns of its end. */
    alarm(10);
    if (fork() == 0) {
        usleep(200000);
        _exit(kill(worker, SIGKILL));
    }
    pw_status status = pw_client_call(client, "wait", 4, 0, pw_in_ms(5000), &reply, NULL, &error);
    printf("%s\n", pw_status_text(status));

    pw_buffer_free(&reply);
    pw_client_free(client);
    pw_segment_free(segment);
    while (wait(NULL) > 0) continue;
    return status != PW_PEER_DIED;
}
