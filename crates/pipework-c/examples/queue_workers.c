/*
 * Jobs wait in a FIFO until a worker takes them. Workers take turns under a lock of the FIFO, and each
 * stops reading at the end of the job that it takes.
 */
#include <fcntl.h>
#include <pipework.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
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

static void work(const char *path, int number) {
    pwk_atomic_reader *reader = NULL;
    pwk_item job;
    int jobs = open(path, O_RDWR | O_CLOEXEC);
    must(pwk_atomic_reader_from_fd(jobs, PWK_FD_LEND, NULL, &reader, &error));
    pwk_atomic_reader_set_exact(reader, 1); /* the bytes behind a job stay for the others */
    if (flock(jobs, LOCK_EX) != 0) exit(1); /* one at a time, those of the command as well */
    must(pwk_atomic_reader_recv(reader, pwk_in_ms(5000), &job, &error));
    flock(jobs, LOCK_UN);
    printf("%d: %.*s\n", number, (int)job.len, (const char *)job.data);
    /* Work, and then lock again for the next one. */
    pwk_atomic_reader_free(reader);
    exit(0);
}

int main(void) {
    char path[64];
    int status, failed = 0;
    pwk_atomic_writer *writer = NULL;
    snprintf(path, sizeof path, "/tmp/jobs-%d", (int)getpid());
    must(pwk_atomic_create_fifo(path, &error));
    /* Open for both: then a sender need not wait for a worker, and waiting jobs are kept. */
    int kept = open(path, O_RDWR | O_CLOEXEC);
    must(pwk_atomic_writer_open_fifo(path, NULL, pwk_in_ms(5000), &writer, &error));
    must(pwk_atomic_writer_send(writer, "lint", 4, pwk_in_ms(5000), &error));
    must(pwk_atomic_writer_send(writer, "test", 4, pwk_in_ms(5000), &error));
    must(pwk_atomic_writer_send(writer, "docs", 4, pwk_in_ms(5000), &error));
    pwk_atomic_writer_free(writer);
    for (int number = 1; number <= 3; number++) {
        if (fork() == 0) work(path, number);
    }
    while (wait(&status) > 0) failed += status != 0;
    close(kept);
    unlink(path);
    return failed;
}
