/*
 * A tool server on stdin and stdout, whose libraries may print: the host that starts it, and with
 * --serve the server. A request is a line, such as "1 add 2 40": its number, a tool, and two
 * numbers. The answer, "1 42" or "1 error: why", is a message, so no print is taken for it.
 */
#include <pipework.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static pw_error error; /* of the last call that failed */

static void must(pw_status status) {
    char text[256];
    if (status == PW_OK) return;
    pw_error_text(&error, text, sizeof text);
    fprintf(stderr, "%s\n", text);
    exit(1);
}

static int serve(const pw_atomic_options *options) {
    pw_writer *answers = NULL;
    char line[256], tool[32], answer[64];
    must(pw_atomic_write_fd(STDOUT_FILENO, PW_FD_LEND, options, &answers, &error));
    setlinebuf(stdout); /* so that lines stay in order with messages */
    while (fgets(line, sizeof line, stdin) != NULL) {
        int number = 0, one, other;
        int found = sscanf(line, "%d %31s %d %d", &number, tool, &one, &other);
        if (found == 4 && strcmp(tool, "add") == 0) {
            printf("DEBUG: adding, and this line was to be removed\n");
            snprintf(answer, sizeof answer, "%d %d", number, one + other);
        } else {
            const char *why = found == 4 ? "no such tool" : "two numbers, please";
            snprintf(answer, sizeof answer, "%d error: %s", number, why);
        }
        must(pw_writer_send(answers, answer, strlen(answer), PW_NEVER, NULL, &error));
    }
    pw_writer_free(answers);
    return 0;
}

/* Sends a request, shows what is printed meanwhile, and then the answer. */
static void call(FILE *requests, pw_reader *answers, const char *request) {
    pw_item item;
    fprintf(requests, "%s\n", request);
    do {
        /* PW_CLOSED if the server has ended. */
        must(pw_reader_next_item(answers, pw_in_ms(5000), &item, &error));
        if (item.kind == PW_ITEM_LINE) printf("  printed: %.*s", (int)item.len, (const char *)item.data);
    } while (item.kind != PW_ITEM_MESSAGE);
    printf("%s: %.*s\n", request, (int)item.len, (const char *)item.data);
}

int main(int argc, char **argv) {
    int in[2], status = -1;
    pw_reader *answers = NULL;
    pw_writer *writer = NULL;
    pw_atomic_options options;
    pw_atomic_options_init(&options, sizeof options);
    options.mixed = true;
    if (argc > 1 && strcmp(argv[1], "--serve") == 0) return serve(&options);

    must(pw_atomic_pair(&options, &answers, &writer, &error));
    if (pipe(in) != 0) return perror("pipe"), 1;
    pid_t server = fork();
    if (server == 0) {
        dup2(in[0], STDIN_FILENO);
        dup2(pw_writer_fd(writer), STDOUT_FILENO);
        close(in[0]);
        close(in[1]);
        execl("/proc/self/exe", argv[0], "--serve", (char *)NULL);
        _exit(127);
    }
    /* Each pipe ends with its last writer, and this process has one of the second. */
    close(in[0]);
    pw_writer_free(writer);
    FILE *requests = fdopen(in[1], "w");
    if (requests == NULL) return perror("fdopen"), 1;
    setlinebuf(requests);

    call(requests, answers, "1 add 2 40");
    call(requests, answers, "2 add 2");
    call(requests, answers, "3 divide 2 0");
    fclose(requests); /* the server ends */
    pw_reader_free(answers);
    waitpid(server, &status, 0);
    return status != 0;
}
