/* Room atomic. */
#include "check.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

static pw_reader *reader;
static pw_writer *writer;
static pw_atomic_options options;
static pw_item item;
static uint32_t parts;
static size_t count;
static bool answer;

/* A pipe with `options`, which are as `with` leaves them. */
static void set_up_with(void (*with)(void)) {
    pw_atomic_options_init(&options, sizeof options);
    if (with != NULL) with();
    OK(pw_atomic_pair(&options, &reader, &writer, &error));
}

static void set_up(void) {
    set_up_with(NULL);
}

static void mixed(void) {
    options.mixed = true;
}

static void tear_down(void) {
    pw_writer_free(writer);
    pw_reader_free(reader);
    writer = NULL;
    reader = NULL;
}

static bool is(uint32_t kind, const char *text) {
    return item.kind == kind && item.len == strlen(text) && memcmp(item.data, text, item.len) == 0;
}

/* `len` bytes that tell where they stand. To be freed. */
static char *bytes_of(size_t len) {
    char *bytes = malloc(len);
    for (size_t i = 0; i < len; i++) bytes[i] = (char)(i * 7 + i / 256);
    return bytes;
}

static bool is_bytes(size_t len) {
    char *bytes = bytes_of(len);
    bool same = item.kind == PW_ITEM_MESSAGE && item.len == len && memcmp(item.data, bytes, len) == 0;
    free(bytes);
    return same;
}

/* Sends until the pipe has no space for anything, and says how many messages that were. */
static size_t fill_the_pipe(void) {
    char bytes[4000] = {0};
    pw_writer_set_max_pending(writer, 0);
    size_t sent = 0;
    while (pw_writer_try_send(writer, bytes, sizeof bytes, NULL, &error) == PW_OK) sent++;
    while (pw_writer_try_send(writer, NULL, 0, NULL, &error) == PW_OK) sent++;
    return sent;
}

static void no_writer_is_left(void) {
    pw_writer_free(writer);
    writer = NULL;
    GIVES(PW_CLOSED, pw_reader_recv(reader, SOON, &item, &error));
    CHECK(pw_reader_is_eof(reader) && !pw_reader_torn(reader, &item));
}

static void a_message_of_any_size_comes_whole(void) {
    const size_t sizes[] = {0, 1, 4079, 4080, 4081, 5000, 50000};
    set_up();
    GIVES(PW_WOULD_BLOCK, pw_reader_try_recv(reader, &item, &error));
    CHECK(error.kind == 0);
    GIVES(PW_TIMED_OUT, pw_reader_recv(reader, SHORT, &item, &error));
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char *bytes = bytes_of(sizes[i]);
        OK(pw_writer_send(writer, bytes, sizes[i], SOON, &parts, &error));
        if (i % 2 == 0) {
            OK(pw_reader_recv(reader, SOON, &item, &error));
        } else {
            OK(pw_reader_try_recv(reader, &item, &error));
        }
        CHECK(is_bytes(sizes[i]) && item.parts == parts && parts == 1 + sizes[i] / 4081);
        CHECK(item.compressed == NULL && item.compressed_len == 0);
        CHECK(item.torn == PW_OK && item.torn_bytes == 0 && item.limit == 0);
        pw_key key = pw_writer_key(writer);
        CHECK(item.writer.pid == getpid() && item.writer.pid == key.pid && item.writer.tid == key.tid);
        free(bytes);
    }
    OK(pw_writer_send(writer, NULL, 0, SOON, NULL, NULL));
    OK(pw_reader_recv(reader, SOON, &item, NULL));
    CHECK(item.len == 0);
    no_writer_is_left();
    tear_down();
}

static void print(const char *text) {
    CHECK(write(pw_writer_fd(writer), text, strlen(text)) == (ssize_t)strlen(text));
}

static void text_and_messages_share_a_pipe(void) {
    pw_buffer text = PW_BUFFER;
    set_up_with(mixed);
    CHECK(pw_reader_is_mixed(reader) && pw_writer_is_mixed(writer));
    GIVES(PW_INVALID, pw_reader_recv(reader, SOON, &item, &error));
    GIVES(PW_INVALID, pw_reader_try_recv(reader, &item, &error));
    GIVES(PW_WOULD_BLOCK, pw_reader_try_next_item(reader, &item, &error));
    GIVES(PW_TIMED_OUT, pw_reader_next_item(reader, SHORT, &item, &error));
    print("loading...\nhalf a ");
    OK(pw_writer_send(writer, "message", 7, SOON, NULL, &error));
    OK(pw_writer_burst(writer, "burst", 5, SOON, &error));
    print("line\r\n");
    OK(pw_reader_next_item(reader, SOON, &item, &error));
    CHECK(is(PW_ITEM_LINE, "loading...\n") && item.parts == 0 && item.writer.pid == 0);
    OK(pw_reader_try_next_item(reader, &item, &error));
    CHECK(is(PW_ITEM_MESSAGE, "message") && item.parts == 1 && item.writer.pid == getpid());
    OK(pw_reader_peek(reader, &text, &error));
    CHECK(holds(&text, "half a "));
    OK(pw_reader_next_item(reader, SOON, &item, &error));
    CHECK(is(PW_ITEM_BURST, "burst"));
    OK(pw_reader_next_item(reader, SOON, &item, &error));
    CHECK(is(PW_ITEM_LINE, "half a line\r\n"));
    OK(pw_reader_peek(reader, &text, &error));
    CHECK(text.len == 0);
    GIVES(PW_INVALID, pw_reader_peek(reader, NULL, &error));
    NAMES(pw_reader_peek);
    pw_buffer_free(&text);
    pw_writer_free(writer);
    writer = NULL;
    GIVES(PW_CLOSED, pw_reader_next_item(reader, SOON, &item, &error));
    GIVES(PW_CLOSED, pw_reader_try_next_item(reader, &item, &error));
    tear_down();
}

static void what_is_lent_stays_until_the_next_call(void) {
    char *bytes = bytes_of(5000);
    pw_reader *clone = NULL;
    set_up();
    /* From the buffer, put together, and of a reader with clones. */
    OK(pw_writer_send(writer, "first", 5, SOON, NULL, &error));
    OK(pw_writer_send(writer, bytes, 5000, SOON, NULL, &error));
    OK(pw_writer_send(writer, "third", 5, SOON, NULL, &error));
    OK(pw_reader_recv(reader, SOON, &item, &error));
    OK(pw_writer_send(writer, "fourth", 6, SOON, NULL, &error));
    CHECK(is(PW_ITEM_MESSAGE, "first"));
    OK(pw_reader_recv(reader, SOON, &item, &error));
    CHECK(pw_reader_buffered(reader) > 0 && !pw_reader_is_empty(reader) && is_bytes(5000));
    OK(pw_reader_clone(reader, &clone, &error));
    OK(pw_reader_recv(reader, SOON, &item, &error));
    pw_item other;
    OK(pw_reader_recv(clone, SOON, &other, &error));
    CHECK(is(PW_ITEM_MESSAGE, "third") && other.len == 6 && memcmp(other.data, "fourth", 6) == 0);
    pw_reader_free(clone);
    CHECK(is(PW_ITEM_MESSAGE, "third"));
    GIVES(PW_WOULD_BLOCK, pw_reader_try_recv(reader, &item, &error));
    GIVES(PW_INVALID, pw_reader_clone(reader, NULL, &error));
    NAMES(pw_reader_clone);
    free(bytes);
    tear_down();
}

static void what_the_pipe_has_no_space_for_is_pending(void) {
    char *bytes = bytes_of(100000);
    set_up();
    OK(pw_writer_try_send(writer, "small", 5, &parts, &error));
    CHECK(parts == 1 && pw_writer_pending(writer) == 0);
    OK(pw_writer_try_flush(writer, &error));
    /* Larger than the pipe. */
    OK(pw_writer_try_send(writer, bytes, 100000, &parts, &error));
    CHECK(parts > 20 && pw_writer_pending(writer) > 20000);
    GIVES(PW_WOULD_BLOCK, pw_writer_try_flush(writer, &error));
    GIVES(PW_TIMED_OUT, pw_writer_flush(writer, SHORT, &error));
    OK(pw_writer_enqueue(writer, "behind it", 9, &parts, &error));
    pw_writer_set_max_pending(writer, 10);
    GIVES(PW_WOULD_BLOCK, pw_writer_try_send(writer, "refused", 7, &parts, &error));
    GIVES(PW_WOULD_BLOCK, pw_writer_try_burst(writer, "refused", 7, &error));
    GIVES(PW_WOULD_BLOCK, pw_writer_set_mixed(writer, true, &error));
    OK(pw_reader_recv(reader, SOON, &item, &error));
    CHECK(is(PW_ITEM_MESSAGE, "small"));
    /* The pipe has been emptied for it. */
    OK(pw_writer_flush(writer, SOON, &error));
    CHECK(pw_writer_pending(writer) == 0);
    OK(pw_reader_recv(reader, SOON, &item, &error));
    CHECK(is_bytes(100000));
    OK(pw_reader_recv(reader, SOON, &item, &error));
    CHECK(is(PW_ITEM_MESSAGE, "behind it"));

    OK(pw_writer_enqueue(writer, "dropped", 7, NULL, &error));
    pw_writer_discard(writer);
    pw_writer_discard(NULL);
    CHECK(pw_writer_pending(writer) == 0);
    OK(pw_writer_enqueue(writer, "written at last", 15, NULL, &error));
    OK(pw_writer_close(writer, SOON, &error));
    OK(pw_reader_recv(reader, SOON, &item, &error));
    CHECK(is(PW_ITEM_MESSAGE, "written at last"));
    GIVES(PW_CLOSED, pw_reader_recv(reader, SOON, &item, &error));
    pw_reader_free(reader);

    set_up();
    CHECK(fill_the_pipe() > 10);
    OK(pw_writer_enqueue(writer, "too late", 8, NULL, &error));
    int fd = pw_writer_fd(writer);
    GIVES(PW_TIMED_OUT, pw_writer_close(writer, SHORT, &error));
    CHECK(fcntl(fd, F_GETFD) == -1);
    writer = NULL;
    GIVES(PW_INVALID, pw_writer_close(NULL, SOON, &error));
    NAMES(pw_writer_close);
    free(bytes);
    tear_down();
}

static void many_messages_share_a_write(void) {
    const pw_bytes messages[3] = {{"one", 3}, {NULL, 0}, {"three", 5}};
    const pw_bytes bad[2] = {{"one", 3}, {NULL, 1}};
    set_up();
    OK(pw_writer_send_many(writer, messages, 3, SOON, &count, &error));
    CHECK(count == 3);
    OK(pw_writer_send_many(writer, NULL, 0, SOON, &count, &error));
    CHECK(count == 0);
    GIVES(PW_INVALID, pw_writer_send_many(writer, bad, 2, SOON, &count, &error));
    NAMES(pw_writer_send_many);
    GIVES(PW_INVALID, pw_writer_send_many(writer, NULL, 1, SOON, &count, &error));
    GIVES(PW_INVALID, pw_writer_send_many(writer, messages, SIZE_MAX / 8, SOON, &count, &error));
    OK(pw_reader_recv(reader, SOON, &item, &error));
    CHECK(is(PW_ITEM_MESSAGE, "one"));
    OK(pw_reader_recv(reader, SOON, &item, &error));
    CHECK(item.len == 0);
    OK(pw_reader_recv(reader, SOON, &item, &error));
    CHECK(is(PW_ITEM_MESSAGE, "three"));
    GIVES(PW_WOULD_BLOCK, pw_reader_try_recv(reader, &item, &error));
    fill_the_pipe();
    char page[4000] = {0};
    const pw_bytes large = {page, sizeof page};
    GIVES(PW_TIMED_OUT, pw_writer_send_many(writer, &large, 1, SHORT, &count, &error));
    GIVES(PW_TIMED_OUT, pw_writer_send(writer, page, sizeof page, SHORT, &parts, &error));
    GIVES(PW_TIMED_OUT, pw_writer_burst(writer, page, sizeof page, SHORT, &error));
    tear_down();
}

static void bursts_are_one_write(void) {
    char *bytes = bytes_of(5000);
    set_up_with(mixed);
    CHECK(pw_writer_pipe_buf(writer) == 4096 && pw_writer_max_part(writer) < 4096);
    memset(bytes, 'x', 5000);
    OK(pw_writer_fits_in_burst(writer, bytes, 4094, &answer, &count, &error));
    CHECK(answer && count == 4096);
    OK(pw_writer_fits_in_burst(writer, bytes, 4095, &answer, &count, &error));
    CHECK(!answer && count == 0);
    OK(pw_writer_fits_in_burst(writer, bytes, 10, NULL, NULL, &error));
    OK(pw_writer_try_burst(writer, bytes, 4094, &error));
    GIVES(PW_TOO_LONG, pw_writer_burst(writer, bytes, 4095, SOON, &error));
    GIVES(PW_TOO_LONG, pw_writer_try_burst(writer, bytes, 4095, &error));
    GIVES(PW_INVALID, pw_writer_burst(writer, "\x0E", 1, SOON, &error));
    CHECK(strcmp(error.op, "atomic burst") == 0);
    OK(pw_reader_next_item(reader, SOON, &item, &error));
    CHECK(item.kind == PW_ITEM_BURST && item.len == 4094);
    free(bytes);
    tear_down();
}

static void *send_a_thousand(void *of) {
    pw_writer *own = of;
    char bytes[6000];
    for (int i = 0; i < 1000; i++) {
        memset(bytes, 'a' + i % 26, sizeof bytes);
        OK(pw_writer_send(own, bytes, (size_t)(i * 6), SOON, NULL, &error));
    }
    pw_writer_free(own);
    return NULL;
}

/* Counts messages that are whole. */
static void *recv_all(void *of) {
    pw_item got;
    size_t received = 0;
    pw_status status;
    while ((status = pw_reader_recv(of, SOON, &got, &error)) == PW_OK) {
        const char *bytes = got.data;
        for (size_t i = 0; i < got.len; i++) CHECK(bytes[i] == 'a' + (char)(got.len / 6 % 26));
        received++;
    }
    CHECK(status == PW_CLOSED);
    pw_reader_free(of);
    return (void *)received;
}

static void threads_have_clones(void) {
    pthread_t writers[3], readers[2];
    pw_reader *clone = NULL;
    set_up();
    OK(pw_reader_clone(reader, &clone, &error));
    readers[0] = started(recv_all, reader);
    readers[1] = started(recv_all, clone);
    for (int i = 0; i < 3; i++) {
        pw_writer *own = NULL;
        OK(pw_writer_clone(writer, &own, &error));
        CHECK(pw_writer_key(own).tid != pw_writer_key(writer).tid);
        writers[i] = started(send_a_thousand, own);
    }
    GIVES(PW_INVALID, pw_writer_clone(writer, NULL, &error));
    NAMES(pw_writer_clone);
    pw_writer_free(writer);
    for (int i = 0; i < 3; i++) pthread_join(writers[i], NULL);
    size_t received = 0;
    for (int i = 0; i < 2; i++) {
        void *of = NULL;
        pthread_join(readers[i], &of);
        received += (size_t)of;
    }
    CHECK(received == 3000);
    reader = NULL;
    writer = NULL;
}

static void a_child_is_a_writer_of_its_own(void) {
    set_up();
    pw_key parent = pw_writer_key(writer);
    OK(pw_writer_enqueue(writer, "the parent's", 12, NULL, &error));
    pid_t child = fork();
    if (child == 0) {
        CHECK(pw_writer_pending(writer) == 0 && pw_writer_key(writer).tid != parent.tid);
        OK(pw_writer_send(writer, "the child's", 11, SOON, NULL, &error));
        tear_down();
        _exit(0);
    }
    reap(child);
    OK(pw_reader_recv(reader, SOON, &item, &error));
    CHECK(is(PW_ITEM_MESSAGE, "the child's") && item.writer.pid == child);
    OK(pw_writer_flush(writer, SOON, &error));
    OK(pw_reader_recv(reader, SOON, &item, &error));
    CHECK(is(PW_ITEM_MESSAGE, "the parent's") && item.writer.tid == parent.tid);

    /* A child may read what the parent has not begun to read. */
    OK(pw_writer_send(writer, "for the child", 13, SOON, NULL, &error));
    child = fork();
    if (child == 0) {
        OK(pw_reader_recv(reader, SOON, &item, &error));
        CHECK(is(PW_ITEM_MESSAGE, "for the child"));
        tear_down();
        _exit(0);
    }
    reap(child);
    OK(pw_writer_send(writer, "one", 3, SOON, NULL, &error));
    OK(pw_writer_send(writer, "two", 3, SOON, NULL, &error));
    OK(pw_reader_recv(reader, SOON, &item, &error));
    child = fork();
    if (child == 0) {
        GIVES(PW_STALE, pw_reader_recv(reader, SOON, &item, &error));
        GIVES(PW_STALE, pw_reader_try_recv(reader, &item, &error));
        GIVES(PW_STALE, pw_reader_next_item(reader, SOON, &item, &error));
        GIVES(PW_STALE, pw_reader_fill(reader, SOON, &count, &error));
        GIVES(PW_STALE, pw_reader_wait_eof(reader, SOON, &answer, &error));
        GIVES(PW_STALE, pw_reader_finish(reader, &error));
        tear_down();
        _exit(0);
    }
    reap(child);
    OK(pw_reader_recv(reader, SOON, &item, &error));
    CHECK(is(PW_ITEM_MESSAGE, "two"));
    tear_down();
}

/* A child dies in the middle of a message that is larger than the pipe. */
static void die_while_sending(void) {
    pid_t child = fork();
    if (child == 0) {
        char *bytes = bytes_of(1 << 20);
        OK(pw_writer_try_send(writer, bytes, 1 << 20, NULL, &error));
        kill(getpid(), SIGKILL);
    }
    CHECK(waitpid(child, NULL, 0) == child);
    pw_writer_free(writer);
    writer = NULL;
}

static void what_a_killed_writer_did_not_finish_is_reported(void) {
    set_up();
    die_while_sending();
    CHECK(!pw_reader_torn(reader, &item));
    GIVES(PW_TORN, pw_reader_recv(reader, SOON, &item, &error));
    CHECK(pw_reader_torn(reader, &item) && pw_reader_torn(reader, NULL) && !pw_reader_torn(NULL, &item));
    CHECK(item.kind == PW_ITEM_TORN && item.torn == PW_TORN && item.writer.pid > 0 && item.parts > 1);
    CHECK(item.torn_bytes > 4096 && item.data == NULL && item.len == 0 && item.limit == 0);
    GIVES(PW_CLOSED, pw_reader_recv(reader, SOON, &item, &error));
    CHECK(!pw_reader_torn(reader, &item));
    tear_down();

    set_up_with(mixed);
    die_while_sending();
    OK(pw_reader_next_item(reader, SOON, &item, &error));
    CHECK(item.kind == PW_ITEM_TORN && item.torn == PW_TORN && item.parts > 1);
    GIVES(PW_CLOSED, pw_reader_next_item(reader, SOON, &item, &error));
    tear_down();
}

static void small(void) {
    options.max_message = 10000;
}

static void impatient(void) {
    options.max_unfinished = 20000;
}

static void what_is_over_a_limit_is_reported(void) {
    char *bytes = bytes_of(20000);
    set_up_with(small);
    OK(pw_writer_send(writer, bytes, 20000, SOON, NULL, &error));
    OK(pw_writer_send(writer, "after it", 8, SOON, NULL, &error));
    GIVES(PW_TOO_LONG, pw_reader_recv(reader, SOON, &item, &error));
    CHECK(pw_reader_torn(reader, &item));
    CHECK(item.torn == PW_TOO_LONG && item.limit == PW_LIMIT_MAX_MESSAGE && item.torn_bytes > 0);
    OK(pw_reader_recv(reader, SOON, &item, &error));
    CHECK(is(PW_ITEM_MESSAGE, "after it"));
    free(bytes);
    tear_down();

    set_up_with(impatient);
    die_while_sending();
    GIVES(PW_TOO_LONG, pw_reader_recv(reader, SOON, &item, &error));
    CHECK(pw_reader_torn(reader, &item) && item.limit == PW_LIMIT_MAX_UNFINISHED);
    tear_down();
    set_up_with(impatient);
    die_while_sending();
    while (pw_reader_fill(reader, SOON, &count, &error) == PW_OK) CHECK(count > 0);
    GIVES(PW_TOO_LONG, pw_reader_fill(reader, SOON, &count, &error));
    tear_down();
}

static void compressed(void) {
    options.compress = true;
    options.level = 1;
    options.keep_compressed = true;
}

static const char alike[] = "Messages that are alike have most of their bytes in common.";

static void with_dictionary(void) {
    compressed();
    options.dictionary.data = alike;
    options.dictionary.len = strlen(alike);
}

static void no_level(void) {
    options.compress = true;
    options.level = 23;
}

static void messages_are_compressed(void) {
    char zeros[20000] = {0};
    set_up_with(compressed);
    OK(pw_writer_send(writer, zeros, sizeof zeros, SOON, &parts, &error));
    OK(pw_reader_recv(reader, SOON, &item, &error));
    CHECK(parts == 1 && item.len == sizeof zeros && memcmp(item.data, zeros, item.len) == 0);
    CHECK(item.compressed != NULL && item.compressed_len > 4 && item.compressed_len < 100);
    CHECK(memcmp(item.compressed, "\x28\xB5\x2F\xFD", 4) == 0);
    pw_reader_set_keep_compressed(reader, false);
    pw_reader_set_keep_compressed(NULL, false);
    OK(pw_writer_send(writer, zeros, sizeof zeros, SOON, &parts, &error));
    OK(pw_reader_recv(reader, SOON, &item, &error));
    CHECK(item.len == sizeof zeros && item.compressed == NULL && item.compressed_len == 0);
    /* Off on both sides, and on one. */
    OK(pw_writer_set_zstd(writer, NULL, &error));
    OK(pw_reader_set_zstd(reader, NULL, &error));
    OK(pw_writer_send(writer, zeros, sizeof zeros, SOON, &parts, &error));
    OK(pw_reader_recv(reader, SOON, &item, &error));
    CHECK(parts > 1 && item.len == sizeof zeros);
    OK(pw_writer_set_zstd(writer, &options, &error));
    OK(pw_writer_send(writer, zeros, sizeof zeros, SOON, &parts, &error));
    GIVES(PW_INCOMPATIBLE, pw_reader_recv(reader, SOON, &item, &error));
    char text[256];
    pw_error_text(&error, text, sizeof text);
    CHECK(strcmp(text, "atomic recv: it was sent compressed: is `zstd` set on both sides?") == 0);
    tear_down();

    set_up_with(with_dictionary);
    OK(pw_writer_send(writer, alike, strlen(alike), SOON, &parts, &error));
    OK(pw_reader_recv(reader, SOON, &item, &error));
    CHECK(is(PW_ITEM_MESSAGE, alike) && item.compressed_len < strlen(alike) / 2);
    /* A wrong one is noticed. */
    options.dictionary.data = "Another text, of which the messages have nothing.";
    options.dictionary.len = 49;
    OK(pw_reader_set_zstd(reader, &options, &error));
    OK(pw_writer_send(writer, alike, strlen(alike), SOON, &parts, &error));
    GIVES(PW_CORRUPT, pw_reader_recv(reader, SOON, &item, &error));
    no_level();
    GIVES(PW_INVALID, pw_writer_set_zstd(writer, &options, &error));
    GIVES(PW_INVALID, pw_reader_set_zstd(reader, &options, &error));
    options.level = 3;
    options.dictionary.data = NULL;
    GIVES(PW_INVALID, pw_reader_set_zstd(reader, &options, &error));
    NAMES(pw_reader_set_zstd);
    tear_down();
}

static void both_ends_agree_or_say_so(void) {
    pw_writer *other = NULL;
    char text[256];
    set_up();
    pw_atomic_options_init(&options, sizeof options);
    mixed();
    OK(pw_atomic_write_fd(pw_writer_fd(writer), PW_FD_DUP, &options, &other, &error));
    OK(pw_writer_send(other, "mixed", 5, SOON, NULL, &error));
    GIVES(PW_INCOMPATIBLE, pw_reader_recv(reader, SOON, &item, &error));
    pw_error_text(&error, text, sizeof text);
    CHECK(strcmp(text, "atomic recv: what comes was sent with `mixed`: is `mixed` set on both sides?") == 0);
    pw_writer_free(other);
    tear_down();

    set_up();
    OK(pw_writer_set_mixed(writer, true, &error));
    OK(pw_reader_set_mixed(reader, true, &error));
    print("text");
    OK(pw_writer_send(writer, "mixed", 5, SOON, NULL, &error));
    OK(pw_reader_next_item(reader, SOON, &item, &error));
    CHECK(is(PW_ITEM_MESSAGE, "mixed"));
    GIVES(PW_WOULD_BLOCK, pw_reader_set_mixed(reader, false, &error));
    tear_down();
}

static bool is_readable(int fd) {
    struct pollfd polled = {fd, POLLIN, 0};
    return poll(&polled, 1, 0) == 1;
}

static void patient(void) {
    options.mixed = true;
    options.frame_timeout_ns = 50000000;
}

static void a_reader_knows_where_it_is(void) {
    set_up();
    CHECK(pw_reader_is_empty(reader) && pw_reader_buffered(reader) == 0 && !pw_reader_is_eof(reader));
    GIVES(PW_TIMED_OUT, pw_reader_wait_eof(reader, SHORT, &answer, &error));
    GIVES(PW_TIMED_OUT, pw_reader_fill(reader, SHORT, &count, &error));
    CHECK(!is_readable(pw_reader_fd(reader)));
    for (int i = 0; i < 3; i++) OK(pw_writer_send(writer, "hello", 5, SOON, NULL, &error));
    CHECK(is_readable(pw_reader_fd(reader)));
    /* With exact reads, what comes next is for somebody else. */
    pw_reader_set_exact(reader, 1);
    OK(pw_reader_recv(reader, SOON, &item, &error));
    CHECK(pw_reader_is_empty(reader) && is_readable(pw_reader_fd(reader)));
    pw_reader_set_exact(reader, 0);
    pw_reader_set_exact(NULL, 1);
    OK(pw_reader_fill(reader, SOON, &count, &error));
    CHECK(count > 10 && pw_reader_buffered(reader) == count && !is_readable(pw_reader_fd(reader)));
    OK(pw_reader_wait_eof(reader, SOON, &answer, &error));
    CHECK(!answer && pw_reader_buffered(reader) > 0);
    OK(pw_reader_recv(reader, SOON, &item, &error));
    OK(pw_reader_finish(reader, &error));
    OK(pw_reader_recv(reader, SOON, &item, &error));
    GIVES(PW_CLOSED, pw_reader_recv(reader, SOON, &item, &error));
    OK(pw_reader_wait_eof(reader, SOON, &answer, &error));
    CHECK(answer && pw_reader_is_eof(reader));
    CHECK(pw_reader_read_size(reader) == 65536);
    pw_reader_set_read_size(reader, 100);
    CHECK(pw_reader_read_size(reader) == 100);
    pw_reader_set_read_size(reader, 0);
    CHECK(pw_reader_read_size(reader) == 1);
    pw_reader_set_read_size(NULL, 1);
    tear_down();

    set_up_with(patient);
    CHECK(pw_reader_due(reader) == PW_NEVER && pw_reader_due(NULL) == PW_NEVER);
    print("\x0E\x10");
    GIVES(PW_WOULD_BLOCK, pw_reader_try_next_item(reader, &item, &error));
    CHECK(pw_left_ns(pw_reader_due(reader)) <= 50000000);
    GIVES(PW_TIMED_OUT, pw_reader_next_item(reader, pw_in_ms(80), &item, &error));
    CHECK(pw_reader_due(reader) == PW_NEVER);
    print("\n");
    OK(pw_reader_next_item(reader, SOON, &item, &error));
    CHECK(is(PW_ITEM_LINE, "\x0E\x10\n"));
    tear_down();
}

static void a_pipe_has_a_capacity(void) {
    size_t most = 0, now = 0;
    int sockets[2];
    set_up();
    OK(pw_atomic_max_capacity(&most, &error));
    CHECK(most >= 4096);
    OK(pw_reader_capacity(reader, &now, &error));
    OK(pw_writer_capacity(writer, &count, &error));
    CHECK(now == count && now >= 4096);
    OK(pw_writer_set_capacity(writer, 8000, &now, &error));
    CHECK(now == 8192);
    OK(pw_reader_set_capacity(reader, 10000, &now, &error));
    CHECK(now == 16384);
    OK(pw_writer_set_capacity_or_max(writer, SIZE_MAX, &now, &error));
    OK(pw_reader_set_capacity_or_max(reader, SIZE_MAX, &count, &error));
    CHECK(now == count && now >= most);
    fill_the_pipe();
    GIVES(PW_OS, pw_reader_set_capacity(reader, 4096, &now, &error));
    CHECK(error.os == EBUSY);
    tear_down();

    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    OK(pw_atomic_read_fd(sockets[0], PW_FD_TAKE, NULL, &reader, &error));
    OK(pw_atomic_write_fd(sockets[1], PW_FD_TAKE, NULL, &writer, &error));
    GIVES(PW_UNSUPPORTED, pw_reader_capacity(reader, &now, &error));
    GIVES(PW_UNSUPPORTED, pw_reader_set_capacity(reader, 4096, &now, &error));
    GIVES(PW_UNSUPPORTED, pw_reader_set_capacity_or_max(reader, 4096, &now, &error));
    GIVES(PW_UNSUPPORTED, pw_writer_capacity(writer, &now, &error));
    GIVES(PW_UNSUPPORTED, pw_writer_set_capacity(writer, 4096, &now, &error));
    GIVES(PW_UNSUPPORTED, pw_writer_set_capacity_or_max(writer, 4096, &now, &error));
    OK(pw_writer_send(writer, "through a socket", 16, SOON, NULL, &error));
    OK(pw_reader_recv(reader, SOON, &item, &error));
    CHECK(is(PW_ITEM_MESSAGE, "through a socket"));
    tear_down();
}

static void no_descriptor_is_left(void) {
    struct rlimit limit, none;
    pw_reader *reading = NULL;
    pw_writer *writing = NULL;
    set_up();
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    int next = dup(0);
    close(next);
    none = limit;
    none.rlim_cur = (rlim_t)next;
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    GIVES(PW_OS, pw_atomic_pair(NULL, &reading, &writing, &error));
    CHECK(error.os == EMFILE);
    GIVES(PW_OS, pw_atomic_max_capacity(&count, &error));
    GIVES(PW_OS, pw_reader_clone(reader, &reading, &error));
    GIVES(PW_OS, pw_writer_clone(writer, &writing, &error));
    GIVES(PW_OS, pw_atomic_read_fd(pw_reader_fd(reader), PW_FD_DUP, NULL, &reading, &error));
    GIVES(PW_OS, pw_atomic_which_end(pw_reader_fd(reader), NULL, &error));
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0 && reading == NULL && writing == NULL);
    tear_down();
}

static char path[64];

static void *open_for_reading(void *none) {
    usleep(30000);
    OK(pw_atomic_read_fifo(path, NULL, &reader, &error));
    return none;
}

static void a_fifo_has_a_path(void) {
    pw_reader *rival = NULL;
    pw_writer *none = NULL;
    snprintf(path, sizeof path, "/tmp/pw-c-%d", (int)getpid());
    OK(pw_atomic_create_fifo(path, &error));
    GIVES(PW_OS, pw_atomic_create_fifo(path, &error));
    CHECK(error.os == EEXIST);
    struct stat made;
    CHECK(stat(path, &made) == 0 && S_ISFIFO(made.st_mode) && (made.st_mode & 0777) == 0600);

    GIVES(PW_TIMED_OUT, pw_atomic_write_fifo(path, NULL, SHORT, &writer, &error));
    pthread_t thread = started(open_for_reading, NULL);
    OK(pw_atomic_write_fifo(path, NULL, SOON, &writer, &error));
    pthread_join(thread, NULL);
    OK(pw_writer_send(writer, "hello", 5, SOON, NULL, &error));
    OK(pw_reader_recv(reader, SOON, &item, &error));
    CHECK(is(PW_ITEM_MESSAGE, "hello") && !pw_reader_has_rival(reader) && !pw_reader_has_rival(NULL));
    OK(pw_atomic_read_fifo(path, NULL, &rival, &error));
    CHECK(pw_reader_has_rival(reader) && pw_reader_has_rival(rival));
    pw_reader_free(rival);
    no_writer_is_left();
    tear_down();

    /* A listener's pipe never ends. */
    OK(pw_atomic_listen_fifo(path, NULL, &reader, &error));
    int fd = pw_reader_fd(reader);
    for (int i = 0; i < 3; i++) {
        OK(pw_atomic_write_fifo(path, NULL, PW_NEVER, &writer, &error));
        OK(pw_writer_send(writer, "hello", 5, SOON, NULL, &error));
        OK(pw_reader_recv(reader, SOON, &item, &error));
        OK(pw_writer_close(writer, SOON, &error));
        GIVES(PW_TIMED_OUT, pw_reader_recv(reader, SHORT, &item, &error));
        CHECK(!pw_reader_is_eof(reader) && pw_reader_fd(reader) == fd);
    }
    writer = NULL;
    tear_down();
    CHECK(unlink(path) == 0);
    GIVES(PW_OS, pw_atomic_read_fifo(path, NULL, &reader, &error));
    CHECK(error.os == ENOENT);
    GIVES(PW_OS, pw_atomic_listen_fifo(path, NULL, &reader, &error));
    GIVES(PW_OS, pw_atomic_write_fifo(path, NULL, SOON, &none, &error));
    GIVES(PW_INVALID, pw_atomic_read_fifo("/dev/null", NULL, &reader, &error));
    CHECK(reader == NULL && none == NULL);
}

static void descriptors_are_taken_or_lent(void) {
    int ends[2];
    uint32_t end = 0;
    char text[256];
    pw_reader *reading = NULL;
    pw_writer *writing = NULL;
    CHECK(pipe(ends) == 0);
    OK(pw_atomic_which_end(ends[0], &end, &error));
    CHECK(end == PW_READER);
    OK(pw_atomic_which_end(ends[1], &end, &error));
    CHECK(end == PW_WRITER && fcntl(ends[1], F_GETFD) == 0);

    OK(pw_atomic_read_fd(ends[0], PW_FD_LEND, NULL, &reader, &error));
    OK(pw_atomic_write_fd(ends[1], PW_FD_LEND, NULL, &writer, &error));
    CHECK(pw_reader_fd(reader) == ends[0] && pw_writer_fd(writer) == ends[1]);
    OK(pw_writer_send(writer, "lent", 4, SOON, NULL, &error));
    OK(pw_reader_recv(reader, SOON, &item, &error));
    CHECK(is(PW_ITEM_MESSAGE, "lent"));
    tear_down();
    CHECK(fcntl(ends[0], F_GETFD) == 0 && fcntl(ends[1], F_GETFD) == 0);

    OK(pw_atomic_read_fd(ends[0], PW_FD_DUP, NULL, &reader, &error));
    OK(pw_atomic_write_fd(ends[1], PW_FD_DUP, NULL, &writer, &error));
    CHECK(pw_reader_fd(reader) != ends[0] && fcntl(pw_writer_fd(writer), F_GETFD) == FD_CLOEXEC);
    tear_down();
    CHECK(fcntl(ends[0], F_GETFD) == 0 && fcntl(ends[1], F_GETFD) == 0);

    GIVES(PW_INVALID, pw_atomic_read_fd(ends[1], PW_FD_LEND, NULL, &reading, &error));
    pw_error_text(&error, text, sizeof text);
    CHECK(strcmp(text, "use as the reading end of a pipe: it is open for the other direction only") == 0);
    GIVES(PW_INVALID, pw_atomic_write_fd(ends[0], PW_FD_LEND, NULL, &writing, &error));
    GIVES(PW_INVALID, pw_atomic_read_fd(ends[0], 77, NULL, &reading, &error));
    NAMES(pw_atomic_read_fd);
    GIVES(PW_INVALID, pw_atomic_write_fd(ends[1], 0, NULL, &writing, &error));
    NAMES(pw_atomic_write_fd);

    OK(pw_atomic_read_fd(ends[0], PW_FD_TAKE, NULL, &reader, &error));
    CHECK(fcntl(ends[0], F_GETFD) == FD_CLOEXEC);
    /* What is taken is closed also where the call fails. */
    GIVES(PW_INVALID, pw_atomic_write_fd(ends[1], PW_FD_TAKE, NULL, NULL, &error));
    CHECK(fcntl(ends[1], F_GETFD) == -1);
    tear_down();
    CHECK(fcntl(ends[0], F_GETFD) == -1);

    const pw_fd_how ways[] = {PW_FD_TAKE, PW_FD_DUP, PW_FD_LEND};
    for (size_t i = 0; i < 3; i++) {
        GIVES(PW_INVALID, pw_atomic_read_fd(ends[0], ways[i], NULL, &reading, &error));
        CHECK(error.os == EBADF);
        GIVES(PW_INVALID, pw_atomic_write_fd(-1, ways[i], NULL, &writing, &error));
        CHECK(error.os == EBADF);
    }
    GIVES(PW_INVALID, pw_atomic_which_end(ends[0], &end, &error));
    int null = open("/dev/null", O_RDWR);
    GIVES(PW_INVALID, pw_atomic_which_end(null, &end, &error));
    GIVES(PW_INVALID, pw_atomic_write_fd(null, PW_FD_LEND, NULL, &writing, &error));
    close(null);
    CHECK(reading == NULL && writing == NULL);
}

static void messages_are_printed_where_nobody_receives(void) {
    char text[8] = {0};
    FILE *file = tmpfile();
    pw_atomic_options_init(&options, sizeof options);
    options.or_print = true;
    OK(pw_atomic_write_fd(fileno(file), PW_FD_LEND, &options, &writer, &error));
    CHECK(pw_writer_is_printing(writer) && !pw_writer_is_printing(NULL));
    OK(pw_writer_send(writer, "hello", 5, SOON, NULL, &error));
    CHECK(pread(fileno(file), text, sizeof text, 0) == 6 && strcmp(text, "hello\n") == 0);
    fclose(file);
    tear_down();
}

static void a_signal_ends_every_wait_and_nothing_is_lost(void) {
    struct signals signals;
    pw_reader *clone = NULL;
    pw_writer *late = NULL, *none = NULL;
    char page[4000] = {0};
    const pw_bytes large = {page, sizeof page};
    set_up();
    snprintf(path, sizeof path, "/tmp/pw-c-%d", (int)getpid());
    OK(pw_atomic_create_fifo(path, &error));
    OK(pw_writer_clone(writer, &late, &error));
    begin(&signals);
    GIVES(PW_INTERRUPTED, pw_reader_recv(reader, SOON, &item, &error));
    GIVES(PW_INTERRUPTED, pw_reader_next_item(reader, SOON, &item, &error));
    GIVES(PW_INTERRUPTED, pw_reader_fill(reader, SOON, &count, &error));
    GIVES(PW_INTERRUPTED, pw_reader_wait_eof(reader, SOON, &answer, &error));
    GIVES(PW_INTERRUPTED, pw_atomic_write_fifo(path, NULL, SOON, &none, &error));
    GIVES(PW_INTERRUPTED, pw_atomic_write_fifo(path, NULL, PW_NEVER, &none, &error));
    size_t sent = fill_the_pipe();
    GIVES(PW_INTERRUPTED, pw_writer_send(writer, page, sizeof page, SOON, NULL, &error));
    GIVES(PW_INTERRUPTED, pw_writer_send_many(writer, &large, 1, SOON, &count, &error));
    GIVES(PW_INTERRUPTED, pw_writer_burst(writer, page, sizeof page, SOON, &error));
    OK(pw_writer_enqueue(writer, page, sizeof page, NULL, &error));
    GIVES(PW_INTERRUPTED, pw_writer_flush(writer, SOON, &error));
    OK(pw_writer_enqueue(late, page, sizeof page, NULL, &error));
    GIVES(PW_INTERRUPTED, pw_writer_close(late, SOON, &error));
    OK(pw_reader_clone(reader, &clone, &error));
    for (size_t i = 0; i < sent; i++) OK(pw_reader_try_recv(reader, &item, &error));
    GIVES(PW_INTERRUPTED, pw_reader_recv(clone, SOON, &item, &error));
    GIVES(PW_INTERRUPTED, pw_reader_wait_eof(clone, SOON, &answer, &error));
    end(&signals);
    OK(pw_writer_flush(writer, SOON, &error));
    OK(pw_reader_recv(clone, SOON, &item, &error));
    CHECK(item.len == sizeof page && none == NULL);
    GIVES(PW_WOULD_BLOCK, pw_reader_try_recv(reader, &item, &error));
    pw_reader_free(clone);
    CHECK(unlink(path) == 0);
    tear_down();
}

static int asked;

static bool go_on(void) {
    return ++asked < 3;
}

static void a_function_decides_whether_a_message_goes_on(void) {
    char *bytes = bytes_of(1 << 20);
    set_up();
    pw_writer_set_interrupt_check(writer, go_on);
    pw_writer_set_interrupt_check(NULL, go_on);
    GIVES(PW_INTERRUPTED, pw_writer_send(writer, bytes, 1 << 20, PW_NEVER, NULL, &error));
    CHECK(asked == 3);
    pw_writer_set_interrupt_check(writer, NULL);
    GIVES(PW_TIMED_OUT, pw_writer_send(writer, bytes, 1 << 20, SHORT, NULL, &error));
    CHECK(asked == 3);
    free(bytes);
    tear_down();
}

static void nobody_reads_any_more(void) {
    set_up();
    pw_reader_free(reader);
    reader = NULL;
    GIVES(PW_CLOSED, pw_writer_send(writer, "x", 1, SOON, NULL, &error));
    CHECK(error.os == EPIPE);
    GIVES(PW_CLOSED, pw_writer_try_send(writer, "x", 1, NULL, &error));
    GIVES(PW_CLOSED, pw_writer_burst(writer, "x", 1, SOON, &error));
    GIVES(PW_CLOSED, pw_writer_try_burst(writer, "x", 1, &error));
    OK(pw_writer_enqueue(writer, "x", 1, NULL, &error));
    GIVES(PW_CLOSED, pw_writer_try_flush(writer, &error));
    OK(pw_writer_enqueue(writer, "x", 1, NULL, &error));
    GIVES(PW_CLOSED, pw_writer_flush(writer, SOON, &error));
    OK(pw_writer_enqueue(writer, "x", 1, NULL, &error));
    GIVES(PW_CLOSED, pw_writer_close(writer, SOON, &error));
    writer = NULL;
}

static void options_of_other_sizes_are_understood(void) {
    set_up();
    tear_down();
    CHECK(options.max_message == 256u << 20 && options.max_unfinished == 0 && options.level == 3);
    CHECK(options.read_size == 65536 && options.max_pending == 1 << 20 && options.spin_ns == 20000);
    CHECK(options.frame_timeout_ns == 5000000000 && options.dictionary.data == NULL);
    CHECK(options.bursts && !options.mixed && !options.strict && !options.compress && !options.or_print);
    CHECK(!options.accept_unchecked && !options.keep_compressed && options.size == sizeof options);
    /* A program of an earlier version knows max_message and no more. */
    pw_atomic_options_init(&options, offsetof(pw_atomic_options, max_unfinished));
    options.max_message = 3;
    OK(pw_atomic_pair(&options, &reader, &writer, &error));
    OK(pw_writer_send(writer, "four", 4, SOON, NULL, &error));
    GIVES(PW_TOO_LONG, pw_reader_recv(reader, SOON, &item, &error));
    tear_down();
    struct {
        pw_atomic_options known;
        uint64_t unknown;
    } later;
    pw_atomic_options_init(&later.known, sizeof later);
    OK(pw_atomic_pair(&later.known, &reader, &writer, &error));
    tear_down();
    later.unknown = 1;
    GIVES(PW_INVALID, pw_atomic_pair(&later.known, &reader, &writer, &error));
    NAMES(pw_atomic_pair);
    later.known.size = 0;
    GIVES(PW_INVALID, pw_atomic_pair(&later.known, &reader, &writer, &error));
    pw_atomic_options_init(NULL, sizeof options);
    pw_atomic_options_init(&options, sizeof options);
    no_level();
    GIVES(PW_INVALID, pw_atomic_pair(&options, &reader, &writer, &error));
    CHECK(reader == NULL && writer == NULL);
    /* Any bytes but those of pointers and sizes mean something, or are refused. */
    memset(&options, 0xFF, sizeof options);
    options.size = sizeof options;
    options.level = 3;
    options.dictionary.data = "x";
    options.dictionary.len = 1;
    OK(pw_atomic_pair(&options, &reader, &writer, &error));
    tear_down();
}

static void null_is_an_error_where_it_means_nothing(void) {
    pw_reader *reading = NULL;
    pw_writer *writing = NULL;
    set_up();
    GIVES(PW_INVALID, pw_atomic_create_fifo(NULL, &error));
    NAMES(pw_atomic_create_fifo);
    GIVES(PW_INVALID, pw_atomic_read_fifo(NULL, NULL, &reading, &error));
    NAMES(pw_atomic_read_fifo);
    GIVES(PW_INVALID, pw_atomic_listen_fifo("/tmp", NULL, NULL, &error));
    NAMES(pw_atomic_listen_fifo);
    GIVES(PW_INVALID, pw_atomic_write_fifo(NULL, NULL, SOON, &writing, &error));
    NAMES(pw_atomic_write_fifo);
    GIVES(PW_INVALID, pw_atomic_pair(NULL, NULL, &writing, &error));
    GIVES(PW_INVALID, pw_atomic_pair(NULL, &reading, NULL, NULL));
    GIVES(PW_INVALID, pw_reader_recv(NULL, SOON, &item, &error));
    GIVES(PW_INVALID, pw_reader_recv(reader, SOON, NULL, &error));
    NAMES(pw_reader_recv);
    GIVES(PW_INVALID, pw_reader_try_recv(reader, NULL, &error));
    NAMES(pw_reader_try_recv);
    GIVES(PW_INVALID, pw_reader_next_item(NULL, SOON, &item, &error));
    NAMES(pw_reader_next_item);
    GIVES(PW_INVALID, pw_reader_try_next_item(reader, NULL, &error));
    NAMES(pw_reader_try_next_item);
    GIVES(PW_INVALID, pw_reader_fill(NULL, SOON, &count, &error));
    NAMES(pw_reader_fill);
    GIVES(PW_INVALID, pw_reader_wait_eof(NULL, SOON, &answer, &error));
    NAMES(pw_reader_wait_eof);
    GIVES(PW_INVALID, pw_reader_finish(NULL, &error));
    NAMES(pw_reader_finish);
    GIVES(PW_INVALID, pw_reader_set_mixed(NULL, true, &error));
    NAMES(pw_reader_set_mixed);
    GIVES(PW_INVALID, pw_reader_set_zstd(NULL, NULL, &error));
    GIVES(PW_INVALID, pw_reader_capacity(NULL, &count, &error));
    NAMES(pw_reader_capacity);
    GIVES(PW_INVALID, pw_reader_set_capacity(NULL, 1, &count, &error));
    NAMES(pw_reader_set_capacity);
    GIVES(PW_INVALID, pw_reader_set_capacity_or_max(NULL, 1, &count, &error));
    NAMES(pw_reader_set_capacity_or_max);
    GIVES(PW_INVALID, pw_writer_send(NULL, "x", 1, SOON, NULL, &error));
    GIVES(PW_INVALID, pw_writer_send(writer, NULL, 1, SOON, NULL, &error));
    GIVES(PW_INVALID, pw_writer_send(writer, "x", SIZE_MAX, SOON, NULL, &error));
    NAMES(pw_writer_send);
    GIVES(PW_INVALID, pw_writer_try_send(writer, NULL, 1, NULL, &error));
    NAMES(pw_writer_try_send);
    GIVES(PW_INVALID, pw_writer_send_many(writer, NULL, 0, SOON, NULL, &error));
    GIVES(PW_INVALID, pw_writer_enqueue(writer, NULL, 1, NULL, &error));
    NAMES(pw_writer_enqueue);
    GIVES(PW_INVALID, pw_writer_burst(NULL, "x", 1, SOON, &error));
    NAMES(pw_writer_burst);
    GIVES(PW_INVALID, pw_writer_try_burst(writer, NULL, 1, &error));
    NAMES(pw_writer_try_burst);
    GIVES(PW_INVALID, pw_writer_fits_in_burst(writer, NULL, 1, NULL, NULL, &error));
    NAMES(pw_writer_fits_in_burst);
    GIVES(PW_INVALID, pw_writer_flush(NULL, SOON, &error));
    NAMES(pw_writer_flush);
    GIVES(PW_INVALID, pw_writer_try_flush(NULL, &error));
    NAMES(pw_writer_try_flush);
    GIVES(PW_INVALID, pw_writer_set_mixed(NULL, true, &error));
    NAMES(pw_writer_set_mixed);
    GIVES(PW_INVALID, pw_writer_set_zstd(NULL, NULL, &error));
    NAMES(pw_writer_set_zstd);
    GIVES(PW_INVALID, pw_writer_capacity(NULL, &count, &error));
    NAMES(pw_writer_capacity);
    GIVES(PW_INVALID, pw_writer_set_capacity(NULL, 1, &count, &error));
    NAMES(pw_writer_set_capacity);
    GIVES(PW_INVALID, pw_writer_set_capacity_or_max(NULL, 1, &count, &error));
    NAMES(pw_writer_set_capacity_or_max);
    pw_reader_free(NULL);
    pw_writer_free(NULL);
    pw_writer_set_max_pending(NULL, 1);
    CHECK(pw_reader_fd(NULL) == -1 && pw_writer_fd(NULL) == -1 && pw_reader_read_size(NULL) == 0);
    CHECK(!pw_reader_is_eof(NULL) && pw_reader_is_empty(NULL) && pw_reader_buffered(NULL) == 0);
    CHECK(!pw_reader_is_mixed(NULL) && !pw_writer_is_mixed(NULL) && pw_writer_pending(NULL) == 0);
    CHECK(pw_writer_key(NULL).pid == 0 && pw_writer_pipe_buf(NULL) == 0 && pw_writer_max_part(NULL) == 0);
    CHECK(reading == NULL && writing == NULL);
    tear_down();
}

static const struct test tests[] = {
    TEST(a_message_of_any_size_comes_whole),
    TEST(text_and_messages_share_a_pipe),
    TEST(what_is_lent_stays_until_the_next_call),
    TEST(what_the_pipe_has_no_space_for_is_pending),
    TEST(many_messages_share_a_write),
    TEST(bursts_are_one_write),
    TEST(threads_have_clones),
    TEST(a_child_is_a_writer_of_its_own),
    TEST(what_a_killed_writer_did_not_finish_is_reported),
    TEST(what_is_over_a_limit_is_reported),
    TEST(messages_are_compressed),
    TEST(both_ends_agree_or_say_so),
    TEST(a_reader_knows_where_it_is),
    TEST(a_pipe_has_a_capacity),
    TEST(no_descriptor_is_left),
    TEST(a_fifo_has_a_path),
    TEST(descriptors_are_taken_or_lent),
    TEST(messages_are_printed_where_nobody_receives),
    TEST(a_signal_ends_every_wait_and_nothing_is_lost),
    TEST(a_function_decides_whether_a_message_goes_on),
    TEST(nobody_reads_any_more),
    TEST(options_of_other_sizes_are_understood),
    TEST(null_is_an_error_where_it_means_nothing),
};
MAIN(tests)
