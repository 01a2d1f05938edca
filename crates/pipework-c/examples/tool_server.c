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

static pwk_error error; /* of the last call that failed */

static void must(pwk_status status) {
    char text[256];
    if (status == PWK_OK) return;
    pwk_error_text(&error, text, sizeof text);
    fprintf(stderr, "%s\n", text);
    exit(1);
}

static int serve(const pwk_atomic_options *options) {
    pwk_atomic_writer *answers = NULL;
    char line[256], tool[32], answer[64];
    must(pwk_atomic_writer_from_fd(STDOUT_FILENO, PWK_FD_LEND, options, &answers, &error));
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
        must(pwk_atomic_writer_send(answers, answer, strlen(answer), PWK_NEVER, &error));
    }
    pwk_atomic_writer_free(answers);
    return 0;
}

/* Sends a request, shows the text printed meanwhile, and then the answer. */
static void call(FILE *requests, pwk_atomic_reader *answers, const char *request) {
    pwk_item item;
    fprintf(requests, "%s\n", request);
    do {
        /* PWK_CLOSED if the server has ended. */
        must(pwk_atomic_reader_next_item(answers, pwk_in_ms(5000), &item, &error));
        if (item.kind == PWK_ITEM_LINE) {
            printf("  printed: %.*s", (int)item.len, (const char *)item.data);
        }
    } while (item.kind != PWK_ITEM_MESSAGE);
    printf("%s: %.*s\n", request, (int)item.len, (const char *)item.data);
}

int main(int argc, char **argv) {
    int in[2], status = -1;
    pwk_atomic_reader *answers = NULL;
    pwk_atomic_writer *writer = NULL;
    pwk_atomic_options options;
    pwk_atomic_options_init(&options, sizeof options);
    options.mixed = true;
    if (argc > 1 && strcmp(argv[1], "--serve") == 0) return serve(&options);

    must(pwk_atomic_pair(&options, &answers, &writer, &error));
    if (pipe(in) != 0) return perror("pipe"), 1;
    pid_t server = fork();
    if (server == 0) {
        dup2(in[0], STDIN_FILENO);
        dup2(pwk_atomic_writer_fd(writer), STDOUT_FILENO);
        close(in[0]);
        close(in[1]);
        execl("/proc/self/exe", argv[0], "--serve", (char *)NULL);
        _exit(127);
    }
    /* Each pipe ends with its last writer, and this process has one of the second. */
    close(in[0]);
    pwk_atomic_writer_free(writer);
    FILE *requests = fdopen(in[1], "w");
    if (requests == NULL) return perror("fdopen"), 1;
    setlinebuf(requests);

    call(requests, answers, "1 add 2 40");
    call(requests, answers, "2 add 2");
    call(requests, answers, "3 divide 2 0");
    fclose(requests); /* the server ends */
    pwk_atomic_reader_free(answers);
    waitpid(server, &status, 0);
    return status != 0;
}
