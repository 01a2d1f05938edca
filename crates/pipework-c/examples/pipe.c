/* A thread writes a document, another reads it line by line; neither holds it whole. */
#include <pipework.h>
#include <pthread.h>
#include <stdio.h>

static int fail(const pw_error *error) {
    char text[256];
    pw_error_text(error, text, sizeof text);
    return fprintf(stderr, "%s\n", text), 1;
}

/* One that leaves early has not finished: its reader gets an error, and not half a document. */
static void *produce(void *of) {
    pw_pipe_writer *writer = of;
    pw_error error;
    char line[32];
    pw_pipe_writer_must_finish(writer);
    for (int i = 1; i <= 100000; i++) {
        size_t len = (size_t)snprintf(line, sizeof line, "%d\n", i);
        if (pw_pipe_writer_send_all(writer, line, len, PW_NEVER, &error) != PW_OK) {
            fail(&error);
            pw_pipe_writer_free(writer);
            return of;
        }
    }
    return pw_pipe_writer_finish(writer, &error) == PW_OK ? NULL : of;
}

int main(void) {
    pw_error error;
    pw_pipe_reader *reader = NULL;
    pw_pipe_writer *writer = NULL;
    pthread_t thread;
    char line[32];
    size_t len = 1;
    long lines = 0;
    if (pw_pipe_new(PW_PIPE_CAPACITY, &reader, &writer, &error) != PW_OK) return fail(&error);
    if (pthread_create(&thread, NULL, produce, writer) != 0) return 1;
    for (; len > 0; lines += len > 0) {
        pw_status status = pw_pipe_reader_recv_until(reader, '\n', line, sizeof line, PW_NEVER, &len, &error);
        if (status != PW_OK) return fail(&error);
    }
    printf("%ld lines\n", lines);
    pw_pipe_reader_free(reader);
    pthread_join(thread, NULL);
    return lines != 100000;
}
