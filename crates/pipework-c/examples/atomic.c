/* Workers print what they like, and send results of any size, all through one stdout. */
#include <pipework.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int fail(const pw_error *error) {
    char text[256];
    pw_error_text(error, text, sizeof text);
    return fprintf(stderr, "%s\n", text), 1;
}

/* Its stdout is the pipe: a program of its own would begin here. */
static int work(const pw_atomic_options *options, char name) {
    static char result[50000];
    pw_error error;
    pw_writer *writer = NULL;
    memset(result, name, sizeof result);
    if (pw_atomic_write_fd(STDOUT_FILENO, PW_FD_LEND, options, &writer, &error) != PW_OK) return fail(&error);
    printf("worker %c is loading...\n", name);
    fflush(stdout); /* it comes before the message then */
    if (pw_writer_send(writer, result, sizeof result, pw_in_ms(5000), NULL, &error) != PW_OK) return fail(&error);
    pw_writer_free(writer);
    return 0;
}

int main(void) {
    pw_error error;
    pw_reader *reader = NULL;
    pw_writer *writer = NULL;
    pw_item item;
    pw_status status;
    pw_atomic_options options;
    pw_atomic_options_init(&options, sizeof options);
    options.mixed = true;
    if (pw_atomic_pair(&options, &reader, &writer, &error) != PW_OK) return fail(&error);
    for (char name = 'a'; name <= 'c'; name++) {
        if (fork() != 0) continue;
        dup2(pw_writer_fd(writer), STDOUT_FILENO);
        _exit(work(&options, name));
    }
    pw_writer_free(writer); /* the pipe ends with its last writer */

    /* What an item lends is good until the next call. */
    while ((status = pw_reader_next_item(reader, pw_in_ms(5000), &item, &error)) == PW_OK) {
        const char *bytes = item.data;
        if (item.kind == PW_ITEM_LINE) printf("printed: %.*s", (int)item.len, bytes);
        if (item.kind == PW_ITEM_MESSAGE) printf("sent: %zu times '%c'\n", item.len, bytes[0]);
        if (item.kind == PW_ITEM_TORN) printf("lost: %s\n", pw_status_text(item.torn));
    }
    pw_reader_free(reader);
    while (wait(NULL) > 0) continue;
    return status == PW_CLOSED ? 0 : fail(&error);
}
