/* A thread writes a document, another reads it line by line; neither holds it whole. */
#include <pipework.h>
#include <pthread.h>
#include <stdio.h>

static int fail(const pwk_error *error) {
    char text[256];
    pwk_error_text(error, text, sizeof text);
    return fprintf(stderr, "%s\n", text), 1;
}

/* One that leaves early has not finished: its reader gets an error, and not half a document. */
static void *produce(void *of) {
    pwk_pipe_writer *writer = of;
    pwk_error error;
    char line[32];
    pwk_pipe_writer_must_finish(writer);
    for (int i = 1; i <= 100000; i++) {
        size_t len = (size_t)snprintf(line, sizeof line, "%d\n", i);
        if (pwk_pipe_writer_send_all(writer, line, len, PWK_NEVER, &error) != PWK_OK) {
            fail(&error);
            pwk_pipe_writer_free(writer);
            return of;
        }
    }
    return pwk_pipe_writer_finish(writer, &error) == PWK_OK ? NULL : of;
}

int main(void) {
    pwk_error error;
    pwk_pipe_reader *reader = NULL;
    pwk_pipe_writer *writer = NULL;
    pthread_t thread;
    char line[32];
    size_t len = 1;
    long lines = 0;
    if (pwk_pipe_pair(PWK_PIPE_CAPACITY, &reader, &writer, &error) != PWK_OK) return fail(&error);
    if (pthread_create(&thread, NULL, produce, writer) != 0) return 1;
    for (; len > 0; lines += len > 0) {
        pwk_status status = pwk_pipe_reader_recv_until(reader, '\n', line, sizeof line, PWK_NEVER, &len, &error);
        if (status != PWK_OK) return fail(&error);
    }
    printf("%ld lines\n", lines);
    pwk_pipe_reader_free(reader);
    pthread_join(thread, NULL);
    return lines != 100000;
}
