/* Module pipe. */
#include "check.h"

#include <fcntl.h>
#include <sys/socket.h>

static pwk_pipe_reader *reader;
static pwk_pipe_writer *writer;
static char into[256], text[256];
static size_t count;
static uint64_t copied;
static pwk_bytes there[2];
static pwk_space space[2];

static void set_up(size_t capacity) {
    OK(pwk_pipe_pair(capacity, &reader, &writer, &error));
}

static void tear_down(void) {
    pwk_pipe_reader_free(reader);
    pwk_pipe_writer_free(writer);
    reader = NULL;
    writer = NULL;
}

static bool took(const char *bytes) {
    return count == strlen(bytes) && memcmp(into, bytes, count) == 0;
}

/* The reader comes to the end of the stream, as often as it asks. */
static void is_at_the_end(void) {
    for (int i = 0; i < 2; i++) {
        OK(pwk_pipe_reader_recv(reader, into, sizeof into, SOON, &count, &error));
        CHECK(count == 0);
    }
}

static void bytes_come_out_in_order(void) {
    set_up(64);
    CHECK(pwk_pipe_reader_capacity(reader) == 64 && pwk_pipe_writer_capacity(writer) == 64);
    GIVES(PWK_WOULD_BLOCK, pwk_pipe_reader_try_recv(reader, into, sizeof into, &count, &error));
    GIVES(PWK_TIMED_OUT, pwk_pipe_reader_recv(reader, into, sizeof into, SHORT, &count, &error));
    OK(pwk_pipe_writer_send(writer, "hello ", 6, SOON, &count, &error));
    CHECK(count == 6);
    OK(pwk_pipe_writer_try_send(writer, "world", 5, &count, &error));
    CHECK(count == 5 && pwk_pipe_writer_len(writer) == 11 && pwk_pipe_reader_len(reader) == 11);
    OK(pwk_pipe_reader_recv(reader, into, 5, SOON, &count, &error));
    CHECK(took("hello"));
    OK(pwk_pipe_reader_try_recv(reader, into, sizeof into, &count, &error));
    CHECK(took(" world"));

    memset(text, 'x', sizeof text);
    error.done = 0;
    GIVES(PWK_TIMED_OUT, pwk_pipe_writer_send_all(writer, text, 100, SHORT, &error));
    CHECK(error.done == 64 && pwk_pipe_reader_len(reader) == 64);
    GIVES(PWK_WOULD_BLOCK, pwk_pipe_writer_try_send(writer, "y", 1, &count, &error));
    GIVES(PWK_TIMED_OUT, pwk_pipe_writer_send(writer, "y", 1, SHORT, &count, &error));
    GIVES(PWK_TIMED_OUT, pwk_pipe_reader_recv_full(reader, into, 100, SHORT, &count, &error));
    CHECK(error.done == 64 && memcmp(into, text, 64) == 0);

    OK(pwk_pipe_writer_send_all(writer, "one\ntwo\nthree", 13, SOON, &error));
    OK(pwk_pipe_reader_recv_until(reader, '\n', into, sizeof into, SOON, &count, &error));
    CHECK(took("one\n"));
    OK(pwk_pipe_reader_recv_until(reader, '\n', into, 2, SOON, &count, &error));
    CHECK(took("tw"));
    OK(pwk_pipe_reader_recv_full(reader, into, 2, SOON, &count, &error));
    CHECK(took("o\n"));
    GIVES(PWK_TIMED_OUT, pwk_pipe_reader_recv_until(reader, '\n', into, sizeof into, SHORT, &count,
          &error));
    CHECK(error.done == 5 && memcmp(into, "three", 5) == 0);

    OK(pwk_pipe_writer_send_all(writer, "last", 4, SOON, NULL));
    OK(pwk_pipe_writer_finish(writer, &error));
    writer = NULL;
    CHECK(pwk_pipe_reader_is_closed(reader) && pwk_pipe_reader_failure(reader, text, sizeof text) == 0);
    OK(pwk_pipe_reader_recv_full(reader, into, sizeof into, SOON, &count, &error));
    CHECK(took("last"));
    is_at_the_end();
    tear_down();
}

static void nothing_is_a_payload(void) {
    set_up(64);
    OK(pwk_pipe_writer_send(writer, NULL, 0, SHORT, &count, &error));
    OK(pwk_pipe_writer_try_send(writer, NULL, 0, NULL, &error));
    OK(pwk_pipe_writer_send_all(writer, NULL, 0, SHORT, &error));
    OK(pwk_pipe_reader_recv(reader, NULL, 0, SHORT, &count, &error));
    CHECK(count == 0);
    OK(pwk_pipe_reader_try_recv(reader, NULL, 0, NULL, &error));
    OK(pwk_pipe_reader_recv_full(reader, NULL, 0, SHORT, NULL, &error));
    OK(pwk_pipe_reader_recv_until(reader, '\n', NULL, 0, SHORT, NULL, &error));
    OK(pwk_pipe_reader_consume(reader, 0, &error));
    OK(pwk_pipe_writer_commit(writer, 0, &error));
    OK(pwk_pipe_reader_copy_to_fd(reader, STDOUT_FILENO, 0, SHORT, &copied, &error));
    CHECK(copied == 0);
    tear_down();
}

static void bytes_are_lent_where_they_lie(void) {
    set_up(64);
    OK(pwk_pipe_reader_peek(reader, 0, SHORT, there, &error));
    CHECK(there[0].len == 0 && there[1].len == 0);
    GIVES(PWK_TIMED_OUT, pwk_pipe_reader_peek(reader, 1, SHORT, there, &error));
    OK(pwk_pipe_writer_reserve(writer, 1, SOON, space, &error));
    CHECK(space[0].len + space[1].len == 64);
    memcpy(space[0].data, "0123456789", 10);
    OK(pwk_pipe_writer_commit(writer, 10, &error));
    GIVES(PWK_INVALID, pwk_pipe_writer_commit(writer, 55, &error));
    OK(pwk_pipe_reader_peek(reader, 5, SOON, there, &error));
    CHECK(there[0].len == 10 && memcmp(there[0].data, "0123456789", 10) == 0);
    OK(pwk_pipe_reader_consume(reader, 4, &error));
    GIVES(PWK_INVALID, pwk_pipe_reader_consume(reader, 7, &error));
    OK(pwk_pipe_reader_peek(reader, 1, SOON, there, &error));
    CHECK(there[0].len == 6 && memcmp(there[0].data, "456789", 6) == 0);

    /* Round the end of the memory. */
    memset(into, 'x', sizeof into);
    OK(pwk_pipe_writer_send_all(writer, into, 54, SOON, &error));
    OK(pwk_pipe_writer_send_all(writer, "abcd", 4, SOON, &error));
    GIVES(PWK_TIMED_OUT, pwk_pipe_writer_reserve(writer, 1, SHORT, space, &error));
    OK(pwk_pipe_writer_reserve(writer, 0, SHORT, space, &error));
    CHECK(space[0].len == 0 && space[1].len == 0);
    OK(pwk_pipe_reader_peek(reader, 64, SOON, there, &error));
    CHECK(there[0].len == 60 && there[1].len == 4 && memcmp(there[1].data, "abcd", 4) == 0);
    GIVES(PWK_TOO_LONG, pwk_pipe_reader_peek(reader, 65, SOON, there, &error));
    GIVES(PWK_TOO_LONG, pwk_pipe_writer_reserve(writer, 65, SOON, space, &error));
    tear_down();
}

static void an_end_that_is_gone_is_reported(void) {
    set_up(64);
    pwk_pipe_reader_free(reader);
    reader = NULL;
    CHECK(pwk_pipe_writer_is_closed(writer) && pwk_pipe_writer_failure(writer, text, sizeof text) == 0);
    GIVES(PWK_CLOSED, pwk_pipe_writer_send(writer, "x", 1, SOON, &count, &error));
    GIVES(PWK_CLOSED, pwk_pipe_writer_try_send(writer, "x", 1, &count, &error));
    GIVES(PWK_CLOSED, pwk_pipe_writer_send_all(writer, "x", 1, SOON, &error));
    GIVES(PWK_CLOSED, pwk_pipe_writer_reserve(writer, 1, SOON, space, &error));
    GIVES(PWK_CLOSED, pwk_pipe_writer_finish(writer, &error));
    writer = NULL;

    set_up(64);
    CHECK(!pwk_pipe_reader_is_closed(reader) && !pwk_pipe_writer_is_closed(writer));
    pwk_pipe_writer_free(writer);
    writer = NULL;
    is_at_the_end();
    OK(pwk_pipe_reader_peek(reader, 1, SOON, there, &error));
    CHECK(there[0].len == 0);
    tear_down();
}

static void who_gives_up_may_say_why(void) {
    set_up(64);
    OK(pwk_pipe_writer_send_all(writer, "half", 4, SOON, &error));
    pwk_pipe_writer_close_with_error(writer, "the disk is gone");
    writer = NULL;
    OK(pwk_pipe_reader_recv(reader, into, sizeof into, SOON, &count, &error));
    CHECK(took("half"));
    for (int i = 0; i < 2; i++) {
        GIVES(PWK_FAILED, pwk_pipe_reader_recv(reader, into, sizeof into, SOON, &count, &error));
        GIVES(PWK_FAILED, pwk_pipe_reader_try_recv(reader, into, sizeof into, &count, &error));
        GIVES(PWK_FAILED, pwk_pipe_reader_peek(reader, 1, SOON, there, &error));
        CHECK(pwk_pipe_reader_failure(reader, text, sizeof text) == strlen("the disk is gone"));
        CHECK(strcmp(text, "the disk is gone") == 0);
    }
    CHECK(pwk_pipe_reader_failure(reader, text, 9) == strlen("the disk is gone"));
    CHECK(strcmp(text, "the disk") == 0 && pwk_pipe_reader_failure(reader, NULL, 0) > 0);
    tear_down();

    set_up(64);
    pwk_pipe_reader_close_with_error(reader, "\xFF is no text");
    reader = NULL;
    GIVES(PWK_FAILED, pwk_pipe_writer_send(writer, "x", 1, SOON, &count, &error));
    CHECK(pwk_pipe_writer_failure(writer, text, sizeof text) > strlen(" is no text"));
    GIVES(PWK_FAILED, pwk_pipe_writer_finish(writer, &error));
    writer = NULL;

    set_up(64);
    pwk_pipe_reader_close_with_error(reader, NULL);
    reader = NULL;
    GIVES(PWK_FAILED, pwk_pipe_writer_send_all(writer, "x", 1, SOON, &error));
    CHECK(pwk_pipe_writer_failure(writer, text, sizeof text) > 0 && strlen(text) > 0);
    tear_down();
}

static void half_a_stream_does_not_look_like_a_whole_one(void) {
    set_up(64);
    pwk_pipe_writer_must_finish(writer);
    OK(pwk_pipe_writer_send_all(writer, "half", 4, SOON, &error));
    pwk_pipe_writer_free(writer);
    writer = NULL;
    GIVES(PWK_FAILED, pwk_pipe_reader_recv_full(reader, into, sizeof into, SOON, &count, &error));
    CHECK(error.done == 4 && pwk_pipe_reader_failure(reader, text, sizeof text) > 0);
    tear_down();

    set_up(64);
    pwk_pipe_writer_must_finish(writer);
    OK(pwk_pipe_writer_finish(writer, &error));
    writer = NULL;
    is_at_the_end();
    tear_down();
}

enum { LONG = 1 << 22 };

static unsigned char byte(size_t i) {
    return (unsigned char)(i * 7 + i / 256);
}

/* Writes a long stream in each way that the interface has. */
static void *produce(void *none) {
    unsigned char piece[1000];
    for (size_t done = 0, ways = 0; done < LONG; ways++) {
        size_t len = LONG - done < sizeof piece ? LONG - done : sizeof piece;
        for (size_t i = 0; i < len; i++) piece[i] = byte(done + i);
        if (ways % 3 == 0) {
            OK(pwk_pipe_writer_send_all(writer, piece, len, SOON, &error));
        } else if (ways % 3 == 1) {
            OK(pwk_pipe_writer_send(writer, piece, len, SOON, &len, &error));
        } else {
            pwk_space free_space[2];
            OK(pwk_pipe_writer_reserve(writer, 1, SOON, free_space, &error));
            if (len > free_space[0].len) len = free_space[0].len;
            memcpy(free_space[0].data, piece, len);
            OK(pwk_pipe_writer_commit(writer, len, &error));
        }
        done += len;
    }
    OK(pwk_pipe_writer_finish(writer, &error));
    return none;
}

static void two_threads_share_a_stream(void) {
    static unsigned char piece[3000];
    size_t done = 0, len = 1;
    set_up(PWK_PIPE_CAPACITY);
    pwk_pipe_writer_set_spin(writer, 0);
    pwk_pipe_reader_set_spin(reader, 1000);
    pthread_t thread = started(produce, NULL);
    for (int ways = 0; len > 0; ways++) {
        if (ways % 2 == 0) {
            OK(pwk_pipe_reader_recv(reader, piece, sizeof piece, SOON, &len, &error));
        } else {
            OK(pwk_pipe_reader_peek(reader, 1, SOON, there, &error));
            len = there[0].len < sizeof piece ? there[0].len : sizeof piece;
            if (len > 0) memcpy(piece, there[0].data, len);
            OK(pwk_pipe_reader_consume(reader, len, &error));
        }
        for (size_t i = 0; i < len; i++) CHECK(piece[i] == byte(done + i));
        done += len;
    }
    CHECK(done == LONG);
    pthread_join(thread, NULL);
    writer = NULL;
    tear_down();
}

static void descriptors_are_copied_from_and_to(void) {
    int from[2], to[2];
    CHECK(pipe(from) == 0 && pipe(to) == 0);
    set_up(64);
    CHECK(write(from[1], "from a descriptor", 17) == 17);
    OK(pwk_pipe_writer_copy_from_fd(writer, from[0], 4, SOON, &copied, &error));
    CHECK(copied == 4);
    GIVES(PWK_TIMED_OUT, pwk_pipe_writer_copy_from_fd(writer, from[0], UINT64_MAX, SHORT, &copied,
          &error));
    CHECK(error.done == 13);
    close(from[1]);
    OK(pwk_pipe_writer_copy_from_fd(writer, from[0], UINT64_MAX, SOON, &copied, &error));
    CHECK(copied == 0);
    GIVES(PWK_TIMED_OUT, pwk_pipe_reader_copy_to_fd(reader, to[1], UINT64_MAX, SHORT, &copied, &error));
    CHECK(error.done == 17);
    OK(pwk_pipe_writer_finish(writer, &error));
    writer = NULL;
    OK(pwk_pipe_reader_copy_to_fd(reader, to[1], UINT64_MAX, SOON, &copied, &error));
    CHECK(copied == 0 && read(to[0], into, sizeof into) == 17
          && memcmp(into, "from a descriptor", 17) == 0);
    tear_down();

    /* The reader is gone: no SIGPIPE, and the bytes that did not leave stay. */
    set_up(64);
    close(to[0]);
    OK(pwk_pipe_writer_send_all(writer, "x", 1, SOON, &error));
    GIVES(PWK_CLOSED, pwk_pipe_reader_copy_to_fd(reader, to[1], 1, SOON, &copied, &error));
    CHECK(error.os == EPIPE && pwk_pipe_reader_len(reader) == 1);
    close(to[1]);
    close(from[0]);
    GIVES(PWK_INVALID, pwk_pipe_reader_copy_to_fd(reader, to[1], 1, SOON, &copied, &error));
    CHECK(error.os == EBADF);
    GIVES(PWK_INVALID, pwk_pipe_reader_copy_to_fd(reader, -1, 1, SOON, &copied, &error));
    GIVES(PWK_INVALID, pwk_pipe_writer_copy_from_fd(writer, from[0], 1, SOON, &copied, &error));
    CHECK(error.os == EBADF);
    tear_down();
}

static void a_signal_ends_every_wait_and_nothing_is_lost(void) {
    struct signals signals;
    int ends[2], full[2];
    CHECK(pipe(ends) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, full) == 0);
    set_up(64);
    memset(text, 'x', sizeof text);
    begin(&signals);
    GIVES(PWK_INTERRUPTED, pwk_pipe_reader_recv(reader, into, sizeof into, SOON, &count, &error));
    GIVES(PWK_INTERRUPTED, pwk_pipe_reader_recv_full(reader, into, sizeof into, SOON, &count, &error));
    GIVES(PWK_INTERRUPTED, pwk_pipe_reader_recv_until(reader, 'x', into, sizeof into, SOON, &count,
          &error));
    GIVES(PWK_INTERRUPTED, pwk_pipe_reader_peek(reader, 1, SOON, there, &error));
    GIVES(PWK_INTERRUPTED, pwk_pipe_reader_copy_to_fd(reader, ends[1], 1, SOON, &copied, &error));
    GIVES(PWK_INTERRUPTED, pwk_pipe_writer_copy_from_fd(writer, ends[0], 1, SOON, &copied, &error));
    GIVES(PWK_INTERRUPTED, pwk_pipe_writer_send_all(writer, text, 100, SOON, &error));
    CHECK(error.done == 64);
    GIVES(PWK_INTERRUPTED, pwk_pipe_writer_send(writer, text, 1, SOON, &count, &error));
    GIVES(PWK_INTERRUPTED, pwk_pipe_writer_reserve(writer, 1, SOON, space, &error));
    GIVES(PWK_INTERRUPTED, pwk_pipe_writer_copy_from_fd(writer, ends[0], 1, SOON, &copied, &error));
    end(&signals);
    OK(pwk_pipe_reader_recv_full(reader, into, 64, SOON, &count, &error));
    CHECK(memcmp(into, text, 64) == 0 && pwk_pipe_reader_len(reader) == 0);

    /* A descriptor that takes no more. */
    CHECK(fcntl(full[0], F_SETFL, O_NONBLOCK) == 0);
    while (write(full[0], text, sizeof text) > 0) continue;
    OK(pwk_pipe_writer_send_all(writer, "kept", 4, SOON, &error));
    begin(&signals);
    GIVES(PWK_INTERRUPTED, pwk_pipe_reader_copy_to_fd(reader, full[0], 4, SOON, &copied, &error));
    end(&signals);
    CHECK(error.done == 0 && pwk_pipe_reader_len(reader) == 4);
    for (int i = 0; i < 2; i++) close(ends[i]), close(full[i]);
    tear_down();
}

static void a_child_has_a_copy_of_its_own(void) {
    set_up(64);
    OK(pwk_pipe_writer_send_all(writer, "hello", 5, SOON, &error));
    pid_t child = fork();
    if (child == 0) {
        OK(pwk_pipe_reader_recv(reader, into, sizeof into, SOON, &count, &error));
        CHECK(took("hello"));
        OK(pwk_pipe_writer_send_all(writer, "child's", 7, SOON, &error));
        tear_down();
        _exit(0);
    }
    reap(child);
    OK(pwk_pipe_reader_recv(reader, into, sizeof into, SOON, &count, &error));
    CHECK(took("hello") && !pwk_pipe_reader_is_closed(reader));
    tear_down();
}

static void null_is_an_error_where_it_means_nothing(void) {
    set_up(64);
    pwk_pipe_reader *no_reader = NULL;
    pwk_pipe_writer *no_writer = NULL;
    GIVES(PWK_INVALID, pwk_pipe_pair(64, NULL, &no_writer, &error));
    NAMES(pwk_pipe_pair);
    GIVES(PWK_INVALID, pwk_pipe_pair(64, &no_reader, NULL, NULL));
    GIVES(PWK_INVALID, pwk_pipe_pair(0, &no_reader, &no_writer, &error));
    GIVES(PWK_INVALID, pwk_pipe_pair(SIZE_MAX, &no_reader, &no_writer, &error));
    GIVES(PWK_OS, pwk_pipe_pair(SIZE_MAX >> 2, &no_reader, &no_writer, &error));
    CHECK(error.os == ENOMEM && no_reader == NULL && no_writer == NULL);
    GIVES(PWK_INVALID, pwk_pipe_reader_recv(NULL, into, 1, SOON, &count, &error));
    GIVES(PWK_INVALID, pwk_pipe_reader_recv(reader, NULL, 1, SOON, &count, &error));
    GIVES(PWK_INVALID, pwk_pipe_reader_recv(reader, into, SIZE_MAX, SOON, &count, &error));
    NAMES(pwk_pipe_reader_recv);
    GIVES(PWK_INVALID, pwk_pipe_reader_try_recv(reader, NULL, 1, &count, &error));
    NAMES(pwk_pipe_reader_try_recv);
    GIVES(PWK_INVALID, pwk_pipe_reader_recv_full(NULL, into, 1, SOON, &count, &error));
    NAMES(pwk_pipe_reader_recv_full);
    GIVES(PWK_INVALID, pwk_pipe_reader_recv_until(reader, 0, NULL, 1, SOON, &count, &error));
    NAMES(pwk_pipe_reader_recv_until);
    GIVES(PWK_INVALID, pwk_pipe_reader_peek(reader, 0, SOON, NULL, &error));
    NAMES(pwk_pipe_reader_peek);
    GIVES(PWK_INVALID, pwk_pipe_reader_consume(NULL, 0, &error));
    NAMES(pwk_pipe_reader_consume);
    GIVES(PWK_INVALID, pwk_pipe_reader_copy_to_fd(NULL, 1, 1, SOON, &copied, &error));
    NAMES(pwk_pipe_reader_copy_to_fd);
    GIVES(PWK_INVALID, pwk_pipe_writer_send(writer, NULL, 1, SOON, &count, &error));
    GIVES(PWK_INVALID, pwk_pipe_writer_send(writer, "x", SIZE_MAX, SOON, &count, &error));
    NAMES(pwk_pipe_writer_send);
    GIVES(PWK_INVALID, pwk_pipe_writer_try_send(NULL, "x", 1, &count, &error));
    NAMES(pwk_pipe_writer_try_send);
    GIVES(PWK_INVALID, pwk_pipe_writer_send_all(writer, NULL, 1, SOON, &error));
    NAMES(pwk_pipe_writer_send_all);
    GIVES(PWK_INVALID, pwk_pipe_writer_reserve(writer, 1, SOON, NULL, &error));
    NAMES(pwk_pipe_writer_reserve);
    GIVES(PWK_INVALID, pwk_pipe_writer_commit(NULL, 0, &error));
    NAMES(pwk_pipe_writer_commit);
    GIVES(PWK_INVALID, pwk_pipe_writer_copy_from_fd(NULL, 0, 1, SOON, &copied, &error));
    NAMES(pwk_pipe_writer_copy_from_fd);
    GIVES(PWK_INVALID, pwk_pipe_writer_finish(NULL, &error));
    NAMES(pwk_pipe_writer_finish);
    pwk_pipe_reader_set_spin(NULL, 0);
    pwk_pipe_writer_set_spin(NULL, 0);
    pwk_pipe_writer_must_finish(NULL);
    pwk_pipe_reader_close_with_error(NULL, "x");
    pwk_pipe_writer_close_with_error(NULL, "x");
    pwk_pipe_reader_free(NULL);
    pwk_pipe_writer_free(NULL);
    CHECK(!pwk_pipe_reader_is_closed(NULL) && !pwk_pipe_writer_is_closed(NULL));
    CHECK(pwk_pipe_reader_len(NULL) == 0 && pwk_pipe_writer_len(NULL) == 0);
    CHECK(pwk_pipe_reader_capacity(NULL) == 0 && pwk_pipe_writer_capacity(NULL) == 0);
    CHECK(pwk_pipe_reader_failure(NULL, text, sizeof text) == 0 && text[0] == 0);
    CHECK(pwk_pipe_writer_failure(NULL, text, sizeof text) == 0);
    tear_down();
}

static const struct test tests[] = {
    TEST(bytes_come_out_in_order),
    TEST(nothing_is_a_payload),
    TEST(bytes_are_lent_where_they_lie),
    TEST(an_end_that_is_gone_is_reported),
    TEST(who_gives_up_may_say_why),
    TEST(half_a_stream_does_not_look_like_a_whole_one),
    TEST(two_threads_share_a_stream),
    TEST(descriptors_are_copied_from_and_to),
    TEST(a_signal_ends_every_wait_and_nothing_is_lost),
    TEST(a_child_has_a_copy_of_its_own),
    TEST(null_is_an_error_where_it_means_nothing),
};
MAIN(tests)
