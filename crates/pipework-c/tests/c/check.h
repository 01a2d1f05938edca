/*
 * Shared by the test programs: OK(call) must succeed, GIVES(PWK_X, call) must fail with PWK_X, and
 * CHECK(condition) must hold. Calls report into `error`.
 *
 * A program is a list of tests. It runs all of them, or the one that is named.
 */
#ifndef CHECK_H
#define CHECK_H

#include <pipework.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static __thread pwk_error error;

static void check_status(pwk_status want, pwk_status got, const char *what, int line) {
    char text[256];
    if (got == want) return;
    pwk_error_text(&error, text, sizeof text);
    fprintf(stderr, "line %d: %s: %s, and not %s (last error: %s)\n", line, what, pwk_status_text(got),
            pwk_status_text(want), text);
    abort();
}

static void check_true(bool holds, const char *what, int line) {
    if (holds) return;
    fprintf(stderr, "line %d: not so: %s\n", line, what);
    abort();
}

#define OK(call) check_status(PWK_OK, call, #call, __LINE__)
#define GIVES(status, call) check_status(status, call, #call, __LINE__)
#define CHECK(condition) check_true(condition, #condition, __LINE__)

/* The last error is an invalid argument of this function. */
#define NAMES(function) CHECK(error.kind == PWK_INVALID && strcmp(error.op, #function) == 0)

/* Deadlines for events that come soon, and for events that must not come. */
#define SOON pwk_in_ms(20000)
#define SHORT pwk_in_ms(30)

static inline bool holds(const pwk_buffer *buffer, const char *text) {
    return buffer->len == strlen(text) && memcmp(buffer->data, text, buffer->len) == 0;
}

/* Waits for a child, which must have succeeded. */
static inline void reap(pid_t child) {
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static inline pthread_t started(void *(*run)(void *), void *of) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, run, of) == 0);
    return thread;
}

/* Signals that end this thread's waits, between begin() and end(). */
struct signals {
    pthread_t from, to;
    atomic_bool is_enough;
};

static inline void no_handler(int signal) {
    (void)signal;
}

static inline void *send_signals(void *of) {
    struct signals *signals = of;
    while (!signals->is_enough) {
        usleep(5000);
        pthread_kill(signals->to, SIGUSR1);
    }
    return NULL;
}

static inline void begin(struct signals *signals) {
    struct sigaction action = {.sa_handler = no_handler};
    sigaction(SIGUSR1, &action, NULL);
    signals->to = pthread_self();
    signals->is_enough = false;
    signals->from = started(send_signals, signals);
}

static inline void end(struct signals *signals) {
    signals->is_enough = true;
    pthread_join(signals->from, NULL);
}

struct test {
    const char *name;
    void (*run)(void);
};
#define TEST(name) {#name, name}

static inline int run_tests(const struct test *tests, size_t count, int argc, char **argv) {
    for (size_t i = 0; i < count; i++) {
        if (argc > 1 && strcmp(argv[1], tests[i].name) != 0) continue;
        fprintf(stderr, "%s\n", tests[i].name);
        memset(&error, 0, sizeof error);
        tests[i].run();
    }
    return 0;
}

#define MAIN(tests)                                                                 \
    int main(int argc, char **argv) {                                               \
        return run_tests(tests, sizeof(tests) / sizeof((tests)[0]), argc, argv);    \
    }

#endif
