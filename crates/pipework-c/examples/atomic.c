/* Workers print text and send results of any size, all through one stdout. */
#include <pipework.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int fail(const pwk_error *error) {
    char text[256];
    pwk_error_text(error, text, sizeof text);
    return fprintf(stderr, "%s\n", text), 1;
}

/* Its stdout is the pipe: a program of its own would begin here. */
static int work(const pwk_atomic_options *options, char name) {
    static char result[50000];
    pwk_error error;
    pwk_atomic_writer *writer = NULL;
    memset(result, name, sizeof result);
    if (pwk_atomic_writer_from_fd(STDOUT_FILENO, PWK_FD_LEND, options, &writer, &error) != PWK_OK) {
        return fail(&error);
    }
    printf("worker %c is loading...\n", name);
    fflush(stdout); /* it comes before the message then */
    if (pwk_atomic_writer_send(writer, result, sizeof result, pwk_in_ms(5000), &error) != PWK_OK) {
        return fail(&error);
    }
    pwk_atomic_writer_free(writer);
    return 0;
}

int main(void) {
    pwk_error error;
    pwk_atomic_reader *reader = NULL;
    pwk_atomic_writer *writer = NULL;
    pwk_item item;
    pwk_status status;
    pwk_atomic_options options;
    pwk_atomic_options_init(&options, sizeof options);
    options.mixed = true;
    if (pwk_atomic_pair(&options, &reader, &writer, &error) != PWK_OK) return fail(&error);
    for (char name = 'a'; name <= 'c'; name++) {
        if (fork() != 0) continue;
        dup2(pwk_atomic_writer_fd(writer), STDOUT_FILENO);
        _exit(work(&options, name));
    }
    pwk_atomic_writer_free(writer); /* the pipe ends with its last writer */

    /* The data of an item is valid until the next call. */
    while ((status = pwk_atomic_reader_next_item(reader, pwk_in_ms(5000), &item, &error)) == PWK_OK) {
        const char *bytes = item.data;
        if (item.kind == PWK_ITEM_LINE) printf("printed: %.*s", (int)item.len, bytes);
        if (item.kind == PWK_ITEM_MESSAGE) printf("sent: %zu times '%c'\n", item.len, bytes[0]);
        if (item.kind == PWK_ITEM_TORN) printf("lost: %s\n", pwk_status_text(item.torn));
    }
    pwk_atomic_reader_free(reader);
    while (wait(NULL) > 0) continue;
    return status == PWK_CLOSED ? 0 : fail(&error);
}
