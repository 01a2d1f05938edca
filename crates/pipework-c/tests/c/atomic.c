/* Module atomic. */
#include "check.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

static pwk_atomic_reader *reader;
static pwk_atomic_writer *writer;
static pwk_atomic_options options;
static pwk_item item;
static uint32_t parts;
static size_t count;
static bool answer;

/* A pipe with `options`, which are as `with` leaves them. */
static void set_up_with(void (*with)(void)) {
    pwk_atomic_options_init(&options, sizeof options);
    if (with != NULL) with();
    OK(pwk_atomic_pair(&options, &reader, &writer, &error));
}

static void set_up(void) {
    set_up_with(NULL);
}

static void mixed(void) {
    options.mixed = true;
}

static void tear_down(void) {
    pwk_atomic_writer_free(writer);
    pwk_atomic_reader_free(reader);
    writer = NULL;
    reader = NULL;
}

static bool is(uint32_t kind, const char *text) {
    return item.kind == kind && item.len == strlen(text) && memcmp(item.data, text, item.len) == 0;
}

/* `len` bytes that depend on their position. The caller frees them. */
static char *bytes_of(size_t len) {
    char *bytes = malloc(len);
    for (size_t i = 0; i < len; i++) bytes[i] = (char)(i * 7 + i / 256);
    return bytes;
}

static bool is_bytes(size_t len) {
    char *bytes = bytes_of(len);
    bool same = item.kind == PWK_ITEM_MESSAGE && item.len == len && memcmp(item.data, bytes, len) == 0;
    free(bytes);
    return same;
}

/* Sends until the pipe has no space for anything, and says how many messages that were. */
static size_t fill_the_pipe(void) {
    char bytes[4000] = {0};
    pwk_atomic_writer_set_max_pending(writer, 0);
    size_t sent = 0;
    while (pwk_atomic_writer_try_send(writer, bytes, sizeof bytes, &error) == PWK_OK) sent++;
    while (pwk_atomic_writer_try_send(writer, NULL, 0, &error) == PWK_OK) sent++;
    return sent;
}

static void no_writer_is_left(void) {
    pwk_atomic_writer_free(writer);
    writer = NULL;
    GIVES(PWK_CLOSED, pwk_atomic_reader_recv(reader, SOON, &item, &error));
    CHECK(pwk_atomic_reader_is_eof(reader) && !pwk_atomic_reader_torn(reader, &item));
}

static void a_message_of_any_size_comes_whole(void) {
    const size_t sizes[] = {0, 1, 4079, 4080, 4081, 5000, 50000};
    set_up();
    GIVES(PWK_WOULD_BLOCK, pwk_atomic_reader_try_recv(reader, &item, &error));
    CHECK(error.kind == 0);
    GIVES(PWK_TIMED_OUT, pwk_atomic_reader_recv(reader, SHORT, &item, &error));
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char *bytes = bytes_of(sizes[i]);
        OK(pwk_atomic_writer_send_message(writer, bytes, sizes[i], SOON, &parts, &error));
        if (i % 2 == 0) {
            OK(pwk_atomic_reader_recv(reader, SOON, &item, &error));
        } else {
            OK(pwk_atomic_reader_try_recv(reader, &item, &error));
        }
        CHECK(is_bytes(sizes[i]) && item.parts == parts && parts == 1 + sizes[i] / 4081);
        CHECK(item.compressed == NULL && item.compressed_len == 0);
        CHECK(item.torn == PWK_OK && item.torn_bytes == 0 && item.limit == 0);
        pwk_key key = pwk_atomic_writer_key(writer);
        CHECK(item.writer.pid == getpid() && item.writer.pid == key.pid && item.writer.tid == key.tid);
        free(bytes);
    }
    OK(pwk_atomic_writer_send(writer, NULL, 0, SOON, NULL));
    OK(pwk_atomic_reader_recv(reader, SOON, &item, NULL));
    CHECK(item.len == 0);
    no_writer_is_left();
    tear_down();
}

static void print(const char *text) {
    CHECK(write(pwk_atomic_writer_fd(writer), text, strlen(text)) == (ssize_t)strlen(text));
}

static void text_and_messages_share_a_pipe(void) {
    pwk_buffer text = PWK_BUFFER;
    set_up_with(mixed);
    CHECK(pwk_atomic_reader_is_mixed(reader) && pwk_atomic_writer_is_mixed(writer));
    GIVES(PWK_INVALID, pwk_atomic_reader_recv(reader, SOON, &item, &error));
    GIVES(PWK_INVALID, pwk_atomic_reader_try_recv(reader, &item, &error));
    GIVES(PWK_WOULD_BLOCK, pwk_atomic_reader_try_next_item(reader, &item, &error));
    GIVES(PWK_TIMED_OUT, pwk_atomic_reader_next_item(reader, SHORT, &item, &error));
    print("loading...\nhalf a ");
    OK(pwk_atomic_writer_send(writer, "message", 7, SOON, &error));
    OK(pwk_atomic_writer_burst(writer, "burst", 5, SOON, &error));
    print("line\r\n");
    OK(pwk_atomic_reader_next_item(reader, SOON, &item, &error));
    CHECK(is(PWK_ITEM_LINE, "loading...\n") && item.parts == 0 && item.writer.pid == 0);
    OK(pwk_atomic_reader_try_next_item(reader, &item, &error));
    CHECK(is(PWK_ITEM_MESSAGE, "message") && item.parts == 1 && item.writer.pid == getpid());
    OK(pwk_atomic_reader_peek(reader, &text, &error));
    CHECK(holds(&text, "half a "));
    OK(pwk_atomic_reader_next_item(reader, SOON, &item, &error));
    CHECK(is(PWK_ITEM_BURST, "burst"));
    OK(pwk_atomic_reader_next_item(reader, SOON, &item, &error));
    CHECK(is(PWK_ITEM_LINE, "half a line\r\n"));
    OK(pwk_atomic_reader_peek(reader, &text, &error));
    CHECK(text.len == 0);
    GIVES(PWK_INVALID, pwk_atomic_reader_peek(reader, NULL, &error));
    NAMES(pwk_atomic_reader_peek);
    pwk_buffer_free(&text);
    pwk_atomic_writer_free(writer);
    writer = NULL;
    GIVES(PWK_CLOSED, pwk_atomic_reader_next_item(reader, SOON, &item, &error));
    GIVES(PWK_CLOSED, pwk_atomic_reader_try_next_item(reader, &item, &error));
    tear_down();
}

static void what_is_lent_stays_until_the_next_call(void) {
    char *bytes = bytes_of(5000);
    pwk_atomic_reader *clone = NULL;
    set_up();
    /* From the buffer, put together, and of a reader with clones. */
    OK(pwk_atomic_writer_send(writer, "first", 5, SOON, &error));
    OK(pwk_atomic_writer_send(writer, bytes, 5000, SOON, &error));
    OK(pwk_atomic_writer_send(writer, "third", 5, SOON, &error));
    OK(pwk_atomic_reader_recv(reader, SOON, &item, &error));
    OK(pwk_atomic_writer_send(writer, "fourth", 6, SOON, &error));
    CHECK(is(PWK_ITEM_MESSAGE, "first"));
    OK(pwk_atomic_reader_recv(reader, SOON, &item, &error));
    CHECK(pwk_atomic_reader_buffered(reader) > 0 && !pwk_atomic_reader_is_empty(reader)
          && is_bytes(5000));
    OK(pwk_atomic_reader_clone(reader, &clone, &error));
    OK(pwk_atomic_reader_recv(reader, SOON, &item, &error));
    pwk_item other;
    OK(pwk_atomic_reader_recv(clone, SOON, &other, &error));
    CHECK(is(PWK_ITEM_MESSAGE, "third") && other.len == 6 && memcmp(other.data, "fourth", 6) == 0);
    pwk_atomic_reader_free(clone);
    CHECK(is(PWK_ITEM_MESSAGE, "third"));
    GIVES(PWK_WOULD_BLOCK, pwk_atomic_reader_try_recv(reader, &item, &error));
    GIVES(PWK_INVALID, pwk_atomic_reader_clone(reader, NULL, &error));
    NAMES(pwk_atomic_reader_clone);
    free(bytes);
    tear_down();
}

static void what_the_pipe_has_no_space_for_is_pending(void) {
    char *bytes = bytes_of(100000);
    set_up();
    OK(pwk_atomic_writer_try_send_message(writer, "small", 5, &parts, &error));
    CHECK(parts == 1 && pwk_atomic_writer_pending(writer) == 0);
    OK(pwk_atomic_writer_try_flush(writer, &error));
    /* Larger than the pipe. */
    OK(pwk_atomic_writer_try_send_message(writer, bytes, 100000, &parts, &error));
    CHECK(parts > 20 && pwk_atomic_writer_pending(writer) > 20000);
    GIVES(PWK_WOULD_BLOCK, pwk_atomic_writer_try_flush(writer, &error));
    GIVES(PWK_TIMED_OUT, pwk_atomic_writer_flush(writer, SHORT, &error));
    OK(pwk_atomic_writer_enqueue(writer, "behind it", 9, &parts, &error));
    pwk_atomic_writer_set_max_pending(writer, 10);
    GIVES(PWK_WOULD_BLOCK, pwk_atomic_writer_try_send_message(writer, "refused", 7, &parts, &error));
    GIVES(PWK_WOULD_BLOCK, pwk_atomic_writer_try_burst(writer, "refused", 7, &error));
    GIVES(PWK_WOULD_BLOCK, pwk_atomic_writer_set_mixed(writer, true, &error));
    OK(pwk_atomic_reader_recv(reader, SOON, &item, &error));
    CHECK(is(PWK_ITEM_MESSAGE, "small"));
    /* The pipe has been emptied for it. */
    OK(pwk_atomic_writer_flush(writer, SOON, &error));
    CHECK(pwk_atomic_writer_pending(writer) == 0);
    OK(pwk_atomic_reader_recv(reader, SOON, &item, &error));
    CHECK(is_bytes(100000));
    OK(pwk_atomic_reader_recv(reader, SOON, &item, &error));
    CHECK(is(PWK_ITEM_MESSAGE, "behind it"));

    OK(pwk_atomic_writer_enqueue(writer, "dropped", 7, NULL, &error));
    pwk_atomic_writer_discard(writer);
    pwk_atomic_writer_discard(NULL);
    CHECK(pwk_atomic_writer_pending(writer) == 0);
    OK(pwk_atomic_writer_enqueue(writer, "written at last", 15, NULL, &error));
    OK(pwk_atomic_writer_close(writer, SOON, &error));
    OK(pwk_atomic_reader_recv(reader, SOON, &item, &error));
    CHECK(is(PWK_ITEM_MESSAGE, "written at last"));
    GIVES(PWK_CLOSED, pwk_atomic_reader_recv(reader, SOON, &item, &error));
    pwk_atomic_reader_free(reader);

    set_up();
    CHECK(fill_the_pipe() > 10);
    OK(pwk_atomic_writer_enqueue(writer, "too late", 8, NULL, &error));
    int fd = pwk_atomic_writer_fd(writer);
    GIVES(PWK_TIMED_OUT, pwk_atomic_writer_close(writer, SHORT, &error));
    CHECK(fcntl(fd, F_GETFD) == -1);
    writer = NULL;
    GIVES(PWK_INVALID, pwk_atomic_writer_close(NULL, SOON, &error));
    NAMES(pwk_atomic_writer_close);
    free(bytes);
    tear_down();
}

static void many_messages_share_a_write(void) {
    const pwk_bytes messages[3] = {{"one", 3}, {NULL, 0}, {"three", 5}};
    const pwk_bytes bad[2] = {{"one", 3}, {NULL, 1}};
    set_up();
    OK(pwk_atomic_writer_send_many(writer, messages, 3, SOON, &count, &error));
    CHECK(count == 3);
    OK(pwk_atomic_writer_send_many(writer, NULL, 0, SOON, &count, &error));
    CHECK(count == 0);
    GIVES(PWK_INVALID, pwk_atomic_writer_send_many(writer, bad, 2, SOON, &count, &error));
    NAMES(pwk_atomic_writer_send_many);
    GIVES(PWK_INVALID, pwk_atomic_writer_send_many(writer, NULL, 1, SOON, &count, &error));
    GIVES(PWK_INVALID, pwk_atomic_writer_send_many(writer, messages, SIZE_MAX / 8, SOON, &count,
          &error));
    OK(pwk_atomic_reader_recv(reader, SOON, &item, &error));
    CHECK(is(PWK_ITEM_MESSAGE, "one"));
    OK(pwk_atomic_reader_recv(reader, SOON, &item, &error));
    CHECK(item.len == 0);
    OK(pwk_atomic_reader_recv(reader, SOON, &item, &error));
    CHECK(is(PWK_ITEM_MESSAGE, "three"));
    GIVES(PWK_WOULD_BLOCK, pwk_atomic_reader_try_recv(reader, &item, &error));
    fill_the_pipe();
    char page[4000] = {0};
    const pwk_bytes large = {page, sizeof page};
    GIVES(PWK_TIMED_OUT, pwk_atomic_writer_send_many(writer, &large, 1, SHORT, &count, &error));
    GIVES(PWK_TIMED_OUT, pwk_atomic_writer_send_message(writer, page, sizeof page, SHORT, &parts,
          &error));
    GIVES(PWK_TIMED_OUT, pwk_atomic_writer_burst(writer, page, sizeof page, SHORT, &error));
    tear_down();
}

static void bursts_are_one_write(void) {
    char *bytes = bytes_of(5000);
    set_up_with(mixed);
    CHECK(pwk_atomic_writer_pipe_buf(writer) == 4096 && pwk_atomic_writer_max_part(writer) < 4096);
    memset(bytes, 'x', 5000);
    OK(pwk_atomic_writer_fits_in_burst(writer, bytes, 4094, &answer, &count, &error));
    CHECK(answer && count == 4096);
    OK(pwk_atomic_writer_fits_in_burst(writer, bytes, 4095, &answer, &count, &error));
    CHECK(!answer && count == 0);
    OK(pwk_atomic_writer_fits_in_burst(writer, bytes, 10, NULL, NULL, &error));
    OK(pwk_atomic_writer_try_burst(writer, bytes, 4094, &error));
    GIVES(PWK_TOO_LONG, pwk_atomic_writer_burst(writer, bytes, 4095, SOON, &error));
    GIVES(PWK_TOO_LONG, pwk_atomic_writer_try_burst(writer, bytes, 4095, &error));
    GIVES(PWK_INVALID, pwk_atomic_writer_burst(writer, "\x0E", 1, SOON, &error));
    CHECK(strcmp(error.op, "atomic burst") == 0);
    OK(pwk_atomic_reader_next_item(reader, SOON, &item, &error));
    CHECK(item.kind == PWK_ITEM_BURST && item.len == 4094);
    free(bytes);
    tear_down();
}

static void *send_a_thousand(void *of) {
    pwk_atomic_writer *own = of;
    char bytes[6000];
    for (int i = 0; i < 1000; i++) {
        memset(bytes, 'a' + i % 26, sizeof bytes);
        OK(pwk_atomic_writer_send(own, bytes, (size_t)(i * 6), SOON, &error));
    }
    pwk_atomic_writer_free(own);
    return NULL;
}

/* Counts messages that are whole. */
static void *recv_all(void *of) {
    pwk_item got;
    size_t received = 0;
    pwk_status status;
    while ((status = pwk_atomic_reader_recv(of, SOON, &got, &error)) == PWK_OK) {
        const char *bytes = got.data;
        for (size_t i = 0; i < got.len; i++) CHECK(bytes[i] == 'a' + (char)(got.len / 6 % 26));
        received++;
    }
    CHECK(status == PWK_CLOSED);
    pwk_atomic_reader_free(of);
    return (void *)received;
}

static void threads_have_clones(void) {
    pthread_t writers[3], readers[2];
    pwk_atomic_reader *clone = NULL;
    set_up();
    OK(pwk_atomic_reader_clone(reader, &clone, &error));
    readers[0] = started(recv_all, reader);
    readers[1] = started(recv_all, clone);
    for (int i = 0; i < 3; i++) {
        pwk_atomic_writer *own = NULL;
        OK(pwk_atomic_writer_clone(writer, &own, &error));
        CHECK(pwk_atomic_writer_key(own).tid != pwk_atomic_writer_key(writer).tid);
        writers[i] = started(send_a_thousand, own);
    }
    GIVES(PWK_INVALID, pwk_atomic_writer_clone(writer, NULL, &error));
    NAMES(pwk_atomic_writer_clone);
    pwk_atomic_writer_free(writer);
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
    pwk_key parent = pwk_atomic_writer_key(writer);
    OK(pwk_atomic_writer_enqueue(writer, "the parent's", 12, NULL, &error));
    pid_t child = fork();
    if (child == 0) {
        CHECK(pwk_atomic_writer_pending(writer) == 0 && pwk_atomic_writer_key(writer).tid != parent.tid);
        OK(pwk_atomic_writer_send(writer, "the child's", 11, SOON, &error));
        tear_down();
        _exit(0);
    }
    reap(child);
    OK(pwk_atomic_reader_recv(reader, SOON, &item, &error));
    CHECK(is(PWK_ITEM_MESSAGE, "the child's") && item.writer.pid == child);
    OK(pwk_atomic_writer_flush(writer, SOON, &error));
    OK(pwk_atomic_reader_recv(reader, SOON, &item, &error));
    CHECK(is(PWK_ITEM_MESSAGE, "the parent's") && item.writer.tid == parent.tid);

    /* A child may read a pipe that the parent has not begun to read. */
    OK(pwk_atomic_writer_send(writer, "for the child", 13, SOON, &error));
    child = fork();
    if (child == 0) {
        OK(pwk_atomic_reader_recv(reader, SOON, &item, &error));
        CHECK(is(PWK_ITEM_MESSAGE, "for the child"));
        tear_down();
        _exit(0);
    }
    reap(child);
    OK(pwk_atomic_writer_send(writer, "one", 3, SOON, &error));
    OK(pwk_atomic_writer_send(writer, "two", 3, SOON, &error));
    OK(pwk_atomic_reader_recv(reader, SOON, &item, &error));
    child = fork();
    if (child == 0) {
        GIVES(PWK_STALE, pwk_atomic_reader_recv(reader, SOON, &item, &error));
        GIVES(PWK_STALE, pwk_atomic_reader_try_recv(reader, &item, &error));
        GIVES(PWK_STALE, pwk_atomic_reader_next_item(reader, SOON, &item, &error));
        GIVES(PWK_STALE, pwk_atomic_reader_read_ahead(reader, SOON, &count, &error));
        GIVES(PWK_STALE, pwk_atomic_reader_wait_eof(reader, SOON, &answer, &error));
        GIVES(PWK_STALE, pwk_atomic_reader_finish(reader, &error));
        tear_down();
        _exit(0);
    }
    reap(child);
    OK(pwk_atomic_reader_recv(reader, SOON, &item, &error));
    CHECK(is(PWK_ITEM_MESSAGE, "two"));
    tear_down();
}

/* A child dies in the middle of a message that is larger than the pipe. */
static void die_while_sending(void) {
    pid_t child = fork();
    if (child == 0) {
        char *bytes = bytes_of(1 << 20);
        OK(pwk_atomic_writer_try_send(writer, bytes, 1 << 20, &error));
        kill(getpid(), SIGKILL);
    }
    CHECK(waitpid(child, NULL, 0) == child);
    pwk_atomic_writer_free(writer);
    writer = NULL;
}

static void what_a_killed_writer_did_not_finish_is_reported(void) {
    set_up();
    die_while_sending();
    CHECK(!pwk_atomic_reader_torn(reader, &item));
    GIVES(PWK_TORN, pwk_atomic_reader_recv(reader, SOON, &item, &error));
    CHECK(pwk_atomic_reader_torn(reader, &item) && pwk_atomic_reader_torn(reader, NULL)
          && !pwk_atomic_reader_torn(NULL, &item));
    CHECK(item.kind == PWK_ITEM_TORN && item.torn == PWK_TORN && item.writer.pid > 0 && item.parts > 1);
    CHECK(item.torn_bytes > 4096 && item.data == NULL && item.len == 0 && item.limit == 0);
    GIVES(PWK_CLOSED, pwk_atomic_reader_recv(reader, SOON, &item, &error));
    CHECK(!pwk_atomic_reader_torn(reader, &item));
    tear_down();

    set_up_with(mixed);
    die_while_sending();
    OK(pwk_atomic_reader_next_item(reader, SOON, &item, &error));
    CHECK(item.kind == PWK_ITEM_TORN && item.torn == PWK_TORN && item.parts > 1);
    GIVES(PWK_CLOSED, pwk_atomic_reader_next_item(reader, SOON, &item, &error));
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
    OK(pwk_atomic_writer_send(writer, bytes, 20000, SOON, &error));
    OK(pwk_atomic_writer_send(writer, "after it", 8, SOON, &error));
    GIVES(PWK_TOO_LONG, pwk_atomic_reader_recv(reader, SOON, &item, &error));
    CHECK(pwk_atomic_reader_torn(reader, &item));
    CHECK(item.torn == PWK_TOO_LONG && item.limit == PWK_LIMIT_MAX_MESSAGE && item.torn_bytes > 0);
    OK(pwk_atomic_reader_recv(reader, SOON, &item, &error));
    CHECK(is(PWK_ITEM_MESSAGE, "after it"));
    free(bytes);
    tear_down();

    set_up_with(impatient);
    die_while_sending();
    GIVES(PWK_TOO_LONG, pwk_atomic_reader_recv(reader, SOON, &item, &error));
    CHECK(pwk_atomic_reader_torn(reader, &item) && item.limit == PWK_LIMIT_MAX_UNFINISHED);
    tear_down();
    set_up_with(impatient);
    die_while_sending();
    while (pwk_atomic_reader_read_ahead(reader, SOON, &count, &error) == PWK_OK) CHECK(count > 0);
    GIVES(PWK_TOO_LONG, pwk_atomic_reader_read_ahead(reader, SOON, &count, &error));
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
    OK(pwk_atomic_writer_send_message(writer, zeros, sizeof zeros, SOON, &parts, &error));
    OK(pwk_atomic_reader_recv(reader, SOON, &item, &error));
    CHECK(parts == 1 && item.len == sizeof zeros && memcmp(item.data, zeros, item.len) == 0);
    CHECK(item.compressed != NULL && item.compressed_len > 4 && item.compressed_len < 100);
    CHECK(memcmp(item.compressed, "\x28\xB5\x2F\xFD", 4) == 0);
    pwk_atomic_reader_set_keep_compressed(reader, false);
    pwk_atomic_reader_set_keep_compressed(NULL, false);
    OK(pwk_atomic_writer_send_message(writer, zeros, sizeof zeros, SOON, &parts, &error));
    OK(pwk_atomic_reader_recv(reader, SOON, &item, &error));
    CHECK(item.len == sizeof zeros && item.compressed == NULL && item.compressed_len == 0);
    /* Off on both sides, and on one. */
    OK(pwk_atomic_writer_set_zstd(writer, NULL, &error));
    OK(pwk_atomic_reader_set_zstd(reader, NULL, &error));
    OK(pwk_atomic_writer_send_message(writer, zeros, sizeof zeros, SOON, &parts, &error));
    OK(pwk_atomic_reader_recv(reader, SOON, &item, &error));
    CHECK(parts > 1 && item.len == sizeof zeros);
    OK(pwk_atomic_writer_set_zstd(writer, &options, &error));
    OK(pwk_atomic_writer_send_message(writer, zeros, sizeof zeros, SOON, &parts, &error));
    GIVES(PWK_INCOMPATIBLE, pwk_atomic_reader_recv(reader, SOON, &item, &error));
    char text[256];
    pwk_error_text(&error, text, sizeof text);
    CHECK(strcmp(text, "atomic recv: the data was sent compressed: is `zstd` set on both sides?") == 0);
    tear_down();

    set_up_with(with_dictionary);
    OK(pwk_atomic_writer_send_message(writer, alike, strlen(alike), SOON, &parts, &error));
    OK(pwk_atomic_reader_recv(reader, SOON, &item, &error));
    CHECK(is(PWK_ITEM_MESSAGE, alike) && item.compressed_len < strlen(alike) / 2);
    /* A wrong one is noticed. */
    options.dictionary.data = "Another text, of which the messages have nothing.";
    options.dictionary.len = 49;
    OK(pwk_atomic_reader_set_zstd(reader, &options, &error));
    OK(pwk_atomic_writer_send_message(writer, alike, strlen(alike), SOON, &parts, &error));
    GIVES(PWK_CORRUPT, pwk_atomic_reader_recv(reader, SOON, &item, &error));
    no_level();
    GIVES(PWK_INVALID, pwk_atomic_writer_set_zstd(writer, &options, &error));
    GIVES(PWK_INVALID, pwk_atomic_reader_set_zstd(reader, &options, &error));
    options.level = 3;
    options.dictionary.data = NULL;
    GIVES(PWK_INVALID, pwk_atomic_reader_set_zstd(reader, &options, &error));
    NAMES(pwk_atomic_reader_set_zstd);
    tear_down();
}

static void both_ends_agree_or_say_so(void) {
    pwk_atomic_writer *other = NULL;
    char text[256];
    set_up();
    pwk_atomic_options_init(&options, sizeof options);
    mixed();
    OK(pwk_atomic_writer_from_fd(pwk_atomic_writer_fd(writer), PWK_FD_DUP, &options, &other, &error));
    OK(pwk_atomic_writer_send(other, "mixed", 5, SOON, &error));
    GIVES(PWK_INCOMPATIBLE, pwk_atomic_reader_recv(reader, SOON, &item, &error));
    pwk_error_text(&error, text, sizeof text);
    CHECK(strcmp(text,
          "atomic recv: the data was sent with `mixed`: is `mixed` set on both sides?") == 0);
    pwk_atomic_writer_free(other);
    tear_down();

    set_up();
    OK(pwk_atomic_writer_set_mixed(writer, true, &error));
    OK(pwk_atomic_reader_set_mixed(reader, true, &error));
    print("text");
    OK(pwk_atomic_writer_send(writer, "mixed", 5, SOON, &error));
    OK(pwk_atomic_reader_next_item(reader, SOON, &item, &error));
    CHECK(is(PWK_ITEM_MESSAGE, "mixed"));
    GIVES(PWK_WOULD_BLOCK, pwk_atomic_reader_set_mixed(reader, false, &error));
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
    CHECK(pwk_atomic_reader_is_empty(reader) && pwk_atomic_reader_buffered(reader) == 0
          && !pwk_atomic_reader_is_eof(reader));
    GIVES(PWK_TIMED_OUT, pwk_atomic_reader_wait_eof(reader, SHORT, &answer, &error));
    GIVES(PWK_TIMED_OUT, pwk_atomic_reader_read_ahead(reader, SHORT, &count, &error));
    CHECK(!is_readable(pwk_atomic_reader_fd(reader)));
    for (int i = 0; i < 3; i++) OK(pwk_atomic_writer_send(writer, "hello", 5, SOON, &error));
    CHECK(is_readable(pwk_atomic_reader_fd(reader)));
    /* Exact reads leave the next bytes for another reader. */
    pwk_atomic_reader_set_exact(reader, 1);
    OK(pwk_atomic_reader_recv(reader, SOON, &item, &error));
    CHECK(pwk_atomic_reader_is_empty(reader) && is_readable(pwk_atomic_reader_fd(reader)));
    pwk_atomic_reader_set_exact(reader, 0);
    pwk_atomic_reader_set_exact(NULL, 1);
    OK(pwk_atomic_reader_read_ahead(reader, SOON, &count, &error));
    CHECK(count > 10 && pwk_atomic_reader_buffered(reader) == count
          && !is_readable(pwk_atomic_reader_fd(reader)));
    OK(pwk_atomic_reader_wait_eof(reader, SOON, &answer, &error));
    CHECK(!answer && pwk_atomic_reader_buffered(reader) > 0);
    OK(pwk_atomic_reader_recv(reader, SOON, &item, &error));
    OK(pwk_atomic_reader_finish(reader, &error));
    OK(pwk_atomic_reader_recv(reader, SOON, &item, &error));
    GIVES(PWK_CLOSED, pwk_atomic_reader_recv(reader, SOON, &item, &error));
    OK(pwk_atomic_reader_wait_eof(reader, SOON, &answer, &error));
    CHECK(answer && pwk_atomic_reader_is_eof(reader));
    CHECK(pwk_atomic_reader_read_size(reader) == 65536);
    pwk_atomic_reader_set_read_size(reader, 100);
    CHECK(pwk_atomic_reader_read_size(reader) == 100);
    pwk_atomic_reader_set_read_size(reader, 0);
    CHECK(pwk_atomic_reader_read_size(reader) == 1);
    pwk_atomic_reader_set_read_size(NULL, 1);
    tear_down();

    set_up_with(patient);
    CHECK(pwk_atomic_reader_next_timeout(reader) == PWK_NEVER
          && pwk_atomic_reader_next_timeout(NULL) == PWK_NEVER);
    print("\x0E\x10");
    GIVES(PWK_WOULD_BLOCK, pwk_atomic_reader_try_next_item(reader, &item, &error));
    CHECK(pwk_left_ns(pwk_atomic_reader_next_timeout(reader)) <= 50000000);
    GIVES(PWK_TIMED_OUT, pwk_atomic_reader_next_item(reader, pwk_in_ms(80), &item, &error));
    CHECK(pwk_atomic_reader_next_timeout(reader) == PWK_NEVER);
    print("\n");
    OK(pwk_atomic_reader_next_item(reader, SOON, &item, &error));
    CHECK(is(PWK_ITEM_LINE, "\x0E\x10\n"));
    tear_down();
}

static void a_pipe_has_a_capacity(void) {
    size_t most = 0, now = 0;
    int sockets[2];
    set_up();
    OK(pwk_atomic_max_capacity(&most, &error));
    CHECK(most >= 4096);
    OK(pwk_atomic_reader_capacity(reader, &now, &error));
    OK(pwk_atomic_writer_capacity(writer, &count, &error));
    CHECK(now == count && now >= 4096);
    OK(pwk_atomic_writer_set_capacity(writer, 8000, &now, &error));
    CHECK(now == 8192);
    OK(pwk_atomic_reader_set_capacity(reader, 10000, &now, &error));
    CHECK(now == 16384);
    OK(pwk_atomic_writer_set_capacity_or_max(writer, SIZE_MAX, &now, &error));
    OK(pwk_atomic_reader_set_capacity_or_max(reader, SIZE_MAX, &count, &error));
    CHECK(now == count && now >= most);
    fill_the_pipe();
    GIVES(PWK_OS, pwk_atomic_reader_set_capacity(reader, 4096, &now, &error));
    CHECK(error.os == EBUSY);
    tear_down();

    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    OK(pwk_atomic_reader_from_fd(sockets[0], PWK_FD_TAKE, NULL, &reader, &error));
    OK(pwk_atomic_writer_from_fd(sockets[1], PWK_FD_TAKE, NULL, &writer, &error));
    GIVES(PWK_UNSUPPORTED, pwk_atomic_reader_capacity(reader, &now, &error));
    GIVES(PWK_UNSUPPORTED, pwk_atomic_reader_set_capacity(reader, 4096, &now, &error));
    GIVES(PWK_UNSUPPORTED, pwk_atomic_reader_set_capacity_or_max(reader, 4096, &now, &error));
    GIVES(PWK_UNSUPPORTED, pwk_atomic_writer_capacity(writer, &now, &error));
    GIVES(PWK_UNSUPPORTED, pwk_atomic_writer_set_capacity(writer, 4096, &now, &error));
    GIVES(PWK_UNSUPPORTED, pwk_atomic_writer_set_capacity_or_max(writer, 4096, &now, &error));
    OK(pwk_atomic_writer_send(writer, "through a socket", 16, SOON, &error));
    OK(pwk_atomic_reader_recv(reader, SOON, &item, &error));
    CHECK(is(PWK_ITEM_MESSAGE, "through a socket"));
    tear_down();
}

static void no_descriptor_is_left(void) {
    struct rlimit limit, none;
    pwk_atomic_reader *reading = NULL;
    pwk_atomic_writer *writing = NULL;
    set_up();
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    int next = dup(0);
    close(next);
    none = limit;
    none.rlim_cur = (rlim_t)next;
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    GIVES(PWK_OS, pwk_atomic_pair(NULL, &reading, &writing, &error));
    CHECK(error.os == EMFILE);
    GIVES(PWK_OS, pwk_atomic_max_capacity(&count, &error));
    GIVES(PWK_OS, pwk_atomic_reader_clone(reader, &reading, &error));
    GIVES(PWK_OS, pwk_atomic_writer_clone(writer, &writing, &error));
    GIVES(PWK_OS, pwk_atomic_reader_from_fd(pwk_atomic_reader_fd(reader), PWK_FD_DUP, NULL,
          &reading, &error));
    GIVES(PWK_OS, pwk_atomic_which_end(pwk_atomic_reader_fd(reader), NULL, &error));
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0 && reading == NULL && writing == NULL);
    tear_down();
}

static char path[64];

static void *open_for_reading(void *none) {
    usleep(30000);
    OK(pwk_atomic_reader_open_fifo(path, NULL, &reader, &error));
    return none;
}

static void a_fifo_has_a_path(void) {
    pwk_atomic_reader *rival = NULL;
    pwk_atomic_writer *none = NULL;
    snprintf(path, sizeof path, "/tmp/pwk-c-%d", (int)getpid());
    OK(pwk_atomic_create_fifo(path, &error));
    GIVES(PWK_OS, pwk_atomic_create_fifo(path, &error));
    CHECK(error.os == EEXIST);
    struct stat made;
    CHECK(stat(path, &made) == 0 && S_ISFIFO(made.st_mode) && (made.st_mode & 0777) == 0600);

    GIVES(PWK_TIMED_OUT, pwk_atomic_writer_open_fifo(path, NULL, SHORT, &writer, &error));
    pthread_t thread = started(open_for_reading, NULL);
    OK(pwk_atomic_writer_open_fifo(path, NULL, SOON, &writer, &error));
    pthread_join(thread, NULL);
    OK(pwk_atomic_writer_send(writer, "hello", 5, SOON, &error));
    OK(pwk_atomic_reader_recv(reader, SOON, &item, &error));
    CHECK(is(PWK_ITEM_MESSAGE, "hello") && !pwk_atomic_reader_has_other_reader(reader)
          && !pwk_atomic_reader_has_other_reader(NULL));
    OK(pwk_atomic_reader_open_fifo(path, NULL, &rival, &error));
    CHECK(pwk_atomic_reader_has_other_reader(reader) && pwk_atomic_reader_has_other_reader(rival));
    pwk_atomic_reader_free(rival);
    no_writer_is_left();
    tear_down();

    /* A listener's pipe never ends. */
    OK(pwk_atomic_reader_listen_fifo(path, NULL, &reader, &error));
    int fd = pwk_atomic_reader_fd(reader);
    for (int i = 0; i < 3; i++) {
        OK(pwk_atomic_writer_open_fifo(path, NULL, PWK_NEVER, &writer, &error));
        OK(pwk_atomic_writer_send(writer, "hello", 5, SOON, &error));
        OK(pwk_atomic_reader_recv(reader, SOON, &item, &error));
        OK(pwk_atomic_writer_close(writer, SOON, &error));
        GIVES(PWK_TIMED_OUT, pwk_atomic_reader_recv(reader, SHORT, &item, &error));
        CHECK(!pwk_atomic_reader_is_eof(reader) && pwk_atomic_reader_fd(reader) == fd);
    }
    writer = NULL;
    tear_down();
    CHECK(unlink(path) == 0);
    GIVES(PWK_OS, pwk_atomic_reader_open_fifo(path, NULL, &reader, &error));
    CHECK(error.os == ENOENT);
    GIVES(PWK_OS, pwk_atomic_reader_listen_fifo(path, NULL, &reader, &error));
    GIVES(PWK_OS, pwk_atomic_writer_open_fifo(path, NULL, SOON, &none, &error));
    GIVES(PWK_INVALID, pwk_atomic_reader_open_fifo("/dev/null", NULL, &reader, &error));
    CHECK(reader == NULL && none == NULL);
}

static void descriptors_are_taken_or_lent(void) {
    int ends[2];
    uint32_t end = 0;
    char text[256];
    pwk_atomic_reader *reading = NULL;
    pwk_atomic_writer *writing = NULL;
    CHECK(pipe(ends) == 0);
    OK(pwk_atomic_which_end(ends[0], &end, &error));
    CHECK(end == PWK_READER);
    OK(pwk_atomic_which_end(ends[1], &end, &error));
    CHECK(end == PWK_WRITER && fcntl(ends[1], F_GETFD) == 0);

    OK(pwk_atomic_reader_from_fd(ends[0], PWK_FD_LEND, NULL, &reader, &error));
    OK(pwk_atomic_writer_from_fd(ends[1], PWK_FD_LEND, NULL, &writer, &error));
    CHECK(pwk_atomic_reader_fd(reader) == ends[0] && pwk_atomic_writer_fd(writer) == ends[1]);
    OK(pwk_atomic_writer_send(writer, "lent", 4, SOON, &error));
    OK(pwk_atomic_reader_recv(reader, SOON, &item, &error));
    CHECK(is(PWK_ITEM_MESSAGE, "lent"));
    tear_down();
    CHECK(fcntl(ends[0], F_GETFD) == 0 && fcntl(ends[1], F_GETFD) == 0);

    OK(pwk_atomic_reader_from_fd(ends[0], PWK_FD_DUP, NULL, &reader, &error));
    OK(pwk_atomic_writer_from_fd(ends[1], PWK_FD_DUP, NULL, &writer, &error));
    CHECK(pwk_atomic_reader_fd(reader) != ends[0]
          && fcntl(pwk_atomic_writer_fd(writer), F_GETFD) == FD_CLOEXEC);
    tear_down();
    CHECK(fcntl(ends[0], F_GETFD) == 0 && fcntl(ends[1], F_GETFD) == 0);

    GIVES(PWK_INVALID, pwk_atomic_reader_from_fd(ends[1], PWK_FD_LEND, NULL, &reading, &error));
    pwk_error_text(&error, text, sizeof text);
    CHECK(strcmp(text,
          "use as the reading end of a pipe: it is open for the other direction only") == 0);
    GIVES(PWK_INVALID, pwk_atomic_writer_from_fd(ends[0], PWK_FD_LEND, NULL, &writing, &error));
    GIVES(PWK_INVALID, pwk_atomic_reader_from_fd(ends[0], 77, NULL, &reading, &error));
    NAMES(pwk_atomic_reader_from_fd);
    GIVES(PWK_INVALID, pwk_atomic_writer_from_fd(ends[1], 0, NULL, &writing, &error));
    NAMES(pwk_atomic_writer_from_fd);

    OK(pwk_atomic_reader_from_fd(ends[0], PWK_FD_TAKE, NULL, &reader, &error));
    CHECK(fcntl(ends[0], F_GETFD) == FD_CLOEXEC);
    /* A descriptor that is taken is closed even if the call fails. */
    GIVES(PWK_INVALID, pwk_atomic_writer_from_fd(ends[1], PWK_FD_TAKE, NULL, NULL, &error));
    CHECK(fcntl(ends[1], F_GETFD) == -1);
    tear_down();
    CHECK(fcntl(ends[0], F_GETFD) == -1);

    const pwk_fd_how ways[] = {PWK_FD_TAKE, PWK_FD_DUP, PWK_FD_LEND};
    for (size_t i = 0; i < 3; i++) {
        GIVES(PWK_INVALID, pwk_atomic_reader_from_fd(ends[0], ways[i], NULL, &reading, &error));
        CHECK(error.os == EBADF);
        GIVES(PWK_INVALID, pwk_atomic_writer_from_fd(-1, ways[i], NULL, &writing, &error));
        CHECK(error.os == EBADF);
    }
    GIVES(PWK_INVALID, pwk_atomic_which_end(ends[0], &end, &error));
    int null = open("/dev/null", O_RDWR);
    GIVES(PWK_INVALID, pwk_atomic_which_end(null, &end, &error));
    GIVES(PWK_INVALID, pwk_atomic_writer_from_fd(null, PWK_FD_LEND, NULL, &writing, &error));
    close(null);
    CHECK(reading == NULL && writing == NULL);
}

static void messages_are_printed_where_nobody_receives(void) {
    char text[8] = {0};
    FILE *file = tmpfile();
    pwk_atomic_options_init(&options, sizeof options);
    options.or_print = true;
    OK(pwk_atomic_writer_from_fd(fileno(file), PWK_FD_LEND, &options, &writer, &error));
    CHECK(pwk_atomic_writer_is_printing(writer) && !pwk_atomic_writer_is_printing(NULL));
    OK(pwk_atomic_writer_send(writer, "hello", 5, SOON, &error));
    CHECK(pread(fileno(file), text, sizeof text, 0) == 6 && strcmp(text, "hello\n") == 0);
    fclose(file);
    tear_down();
}

static void a_signal_ends_every_wait_and_nothing_is_lost(void) {
    struct signals signals;
    pwk_atomic_reader *clone = NULL;
    pwk_atomic_writer *late = NULL, *none = NULL;
    char page[4000] = {0};
    const pwk_bytes large = {page, sizeof page};
    set_up();
    snprintf(path, sizeof path, "/tmp/pwk-c-%d", (int)getpid());
    OK(pwk_atomic_create_fifo(path, &error));
    OK(pwk_atomic_writer_clone(writer, &late, &error));
    begin(&signals);
    GIVES(PWK_INTERRUPTED, pwk_atomic_reader_recv(reader, SOON, &item, &error));
    GIVES(PWK_INTERRUPTED, pwk_atomic_reader_next_item(reader, SOON, &item, &error));
    GIVES(PWK_INTERRUPTED, pwk_atomic_reader_read_ahead(reader, SOON, &count, &error));
    GIVES(PWK_INTERRUPTED, pwk_atomic_reader_wait_eof(reader, SOON, &answer, &error));
    GIVES(PWK_INTERRUPTED, pwk_atomic_writer_open_fifo(path, NULL, SOON, &none, &error));
    GIVES(PWK_INTERRUPTED, pwk_atomic_writer_open_fifo(path, NULL, PWK_NEVER, &none, &error));
    size_t sent = fill_the_pipe();
    GIVES(PWK_INTERRUPTED, pwk_atomic_writer_send(writer, page, sizeof page, SOON, &error));
    GIVES(PWK_INTERRUPTED, pwk_atomic_writer_send_many(writer, &large, 1, SOON, &count, &error));
    GIVES(PWK_INTERRUPTED, pwk_atomic_writer_burst(writer, page, sizeof page, SOON, &error));
    OK(pwk_atomic_writer_enqueue(writer, page, sizeof page, NULL, &error));
    GIVES(PWK_INTERRUPTED, pwk_atomic_writer_flush(writer, SOON, &error));
    OK(pwk_atomic_writer_enqueue(late, page, sizeof page, NULL, &error));
    GIVES(PWK_INTERRUPTED, pwk_atomic_writer_close(late, SOON, &error));
    OK(pwk_atomic_reader_clone(reader, &clone, &error));
    for (size_t i = 0; i < sent; i++) OK(pwk_atomic_reader_try_recv(reader, &item, &error));
    GIVES(PWK_INTERRUPTED, pwk_atomic_reader_recv(clone, SOON, &item, &error));
    GIVES(PWK_INTERRUPTED, pwk_atomic_reader_wait_eof(clone, SOON, &answer, &error));
    end(&signals);
    OK(pwk_atomic_writer_flush(writer, SOON, &error));
    OK(pwk_atomic_reader_recv(clone, SOON, &item, &error));
    CHECK(item.len == sizeof page && none == NULL);
    GIVES(PWK_WOULD_BLOCK, pwk_atomic_reader_try_recv(reader, &item, &error));
    pwk_atomic_reader_free(clone);
    CHECK(unlink(path) == 0);
    tear_down();
}

static int asked;

static bool go_on(void) {
    return ++asked < 3;
}

/* In a process of its own, because a hook cannot be removed. */
static void the_interrupt_hook_decides_whether_a_wait_goes_on(void) {
    GIVES(PWK_INVALID, pwk_set_interrupt_hook(NULL, &error));
    pid_t child = fork();
    if (child == 0) {
        char *bytes = bytes_of(1 << 20);
        OK(pwk_set_interrupt_hook(go_on, &error));
        GIVES(PWK_INVALID, pwk_set_interrupt_hook(go_on, &error));
        set_up();
        GIVES(PWK_INTERRUPTED, pwk_atomic_writer_send(writer, bytes, 1 << 20, PWK_NEVER, &error));
        CHECK(asked == 3);
        asked = -1000000;
        GIVES(PWK_TIMED_OUT, pwk_atomic_writer_send(writer, bytes, 1 << 20, SHORT, &error));
        free(bytes);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void nobody_reads_any_more(void) {
    set_up();
    pwk_atomic_reader_free(reader);
    reader = NULL;
    GIVES(PWK_CLOSED, pwk_atomic_writer_send(writer, "x", 1, SOON, &error));
    CHECK(error.os == EPIPE);
    GIVES(PWK_CLOSED, pwk_atomic_writer_try_send(writer, "x", 1, &error));
    GIVES(PWK_CLOSED, pwk_atomic_writer_burst(writer, "x", 1, SOON, &error));
    GIVES(PWK_CLOSED, pwk_atomic_writer_try_burst(writer, "x", 1, &error));
    OK(pwk_atomic_writer_enqueue(writer, "x", 1, NULL, &error));
    GIVES(PWK_CLOSED, pwk_atomic_writer_try_flush(writer, &error));
    OK(pwk_atomic_writer_enqueue(writer, "x", 1, NULL, &error));
    GIVES(PWK_CLOSED, pwk_atomic_writer_flush(writer, SOON, &error));
    OK(pwk_atomic_writer_enqueue(writer, "x", 1, NULL, &error));
    GIVES(PWK_CLOSED, pwk_atomic_writer_close(writer, SOON, &error));
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
    pwk_atomic_options_init(&options, offsetof(pwk_atomic_options, max_unfinished));
    options.max_message = 3;
    OK(pwk_atomic_pair(&options, &reader, &writer, &error));
    OK(pwk_atomic_writer_send(writer, "four", 4, SOON, &error));
    GIVES(PWK_TOO_LONG, pwk_atomic_reader_recv(reader, SOON, &item, &error));
    tear_down();
    struct {
        pwk_atomic_options known;
        uint64_t unknown;
    } later;
    pwk_atomic_options_init(&later.known, sizeof later);
    OK(pwk_atomic_pair(&later.known, &reader, &writer, &error));
    tear_down();
    later.unknown = 1;
    GIVES(PWK_INVALID, pwk_atomic_pair(&later.known, &reader, &writer, &error));
    NAMES(pwk_atomic_pair);
    later.known.size = 0;
    GIVES(PWK_INVALID, pwk_atomic_pair(&later.known, &reader, &writer, &error));
    pwk_atomic_options_init(NULL, sizeof options);
    pwk_atomic_options_init(&options, sizeof options);
    no_level();
    GIVES(PWK_INVALID, pwk_atomic_pair(&options, &reader, &writer, &error));
    CHECK(reader == NULL && writer == NULL);
    /* Any bytes but those of pointers and sizes mean something, or are refused. */
    memset(&options, 0xFF, sizeof options);
    options.size = sizeof options;
    options.level = 3;
    options.dictionary.data = "x";
    options.dictionary.len = 1;
    OK(pwk_atomic_pair(&options, &reader, &writer, &error));
    tear_down();
}

static void null_is_an_error_where_it_means_nothing(void) {
    pwk_atomic_reader *reading = NULL;
    pwk_atomic_writer *writing = NULL;
    set_up();
    GIVES(PWK_INVALID, pwk_atomic_create_fifo(NULL, &error));
    NAMES(pwk_atomic_create_fifo);
    GIVES(PWK_INVALID, pwk_atomic_reader_open_fifo(NULL, NULL, &reading, &error));
    NAMES(pwk_atomic_reader_open_fifo);
    GIVES(PWK_INVALID, pwk_atomic_reader_listen_fifo("/tmp", NULL, NULL, &error));
    NAMES(pwk_atomic_reader_listen_fifo);
    GIVES(PWK_INVALID, pwk_atomic_writer_open_fifo(NULL, NULL, SOON, &writing, &error));
    NAMES(pwk_atomic_writer_open_fifo);
    GIVES(PWK_INVALID, pwk_atomic_pair(NULL, NULL, &writing, &error));
    GIVES(PWK_INVALID, pwk_atomic_pair(NULL, &reading, NULL, NULL));
    GIVES(PWK_INVALID, pwk_atomic_reader_recv(NULL, SOON, &item, &error));
    GIVES(PWK_INVALID, pwk_atomic_reader_recv(reader, SOON, NULL, &error));
    NAMES(pwk_atomic_reader_recv);
    GIVES(PWK_INVALID, pwk_atomic_reader_try_recv(reader, NULL, &error));
    NAMES(pwk_atomic_reader_try_recv);
    GIVES(PWK_INVALID, pwk_atomic_reader_next_item(NULL, SOON, &item, &error));
    NAMES(pwk_atomic_reader_next_item);
    GIVES(PWK_INVALID, pwk_atomic_reader_try_next_item(reader, NULL, &error));
    NAMES(pwk_atomic_reader_try_next_item);
    GIVES(PWK_INVALID, pwk_atomic_reader_read_ahead(NULL, SOON, &count, &error));
    NAMES(pwk_atomic_reader_read_ahead);
    GIVES(PWK_INVALID, pwk_atomic_reader_wait_eof(NULL, SOON, &answer, &error));
    NAMES(pwk_atomic_reader_wait_eof);
    GIVES(PWK_INVALID, pwk_atomic_reader_finish(NULL, &error));
    NAMES(pwk_atomic_reader_finish);
    GIVES(PWK_INVALID, pwk_atomic_reader_set_mixed(NULL, true, &error));
    NAMES(pwk_atomic_reader_set_mixed);
    GIVES(PWK_INVALID, pwk_atomic_reader_set_zstd(NULL, NULL, &error));
    GIVES(PWK_INVALID, pwk_atomic_reader_capacity(NULL, &count, &error));
    NAMES(pwk_atomic_reader_capacity);
    GIVES(PWK_INVALID, pwk_atomic_reader_set_capacity(NULL, 1, &count, &error));
    NAMES(pwk_atomic_reader_set_capacity);
    GIVES(PWK_INVALID, pwk_atomic_reader_set_capacity_or_max(NULL, 1, &count, &error));
    NAMES(pwk_atomic_reader_set_capacity_or_max);
    GIVES(PWK_INVALID, pwk_atomic_writer_send(NULL, "x", 1, SOON, &error));
    GIVES(PWK_INVALID, pwk_atomic_writer_send(writer, NULL, 1, SOON, &error));
    GIVES(PWK_INVALID, pwk_atomic_writer_send(writer, "x", SIZE_MAX, SOON, &error));
    NAMES(pwk_atomic_writer_send);
    GIVES(PWK_INVALID, pwk_atomic_writer_send_message(writer, NULL, 1, SOON, NULL, &error));
    NAMES(pwk_atomic_writer_send_message);
    GIVES(PWK_INVALID, pwk_atomic_writer_try_send(writer, NULL, 1, &error));
    NAMES(pwk_atomic_writer_try_send);
    GIVES(PWK_INVALID, pwk_atomic_writer_try_send_message(writer, NULL, 1, NULL, &error));
    NAMES(pwk_atomic_writer_try_send_message);
    GIVES(PWK_INVALID, pwk_atomic_writer_send_many(writer, NULL, 0, SOON, NULL, &error));
    GIVES(PWK_INVALID, pwk_atomic_writer_enqueue(writer, NULL, 1, NULL, &error));
    NAMES(pwk_atomic_writer_enqueue);
    GIVES(PWK_INVALID, pwk_atomic_writer_burst(NULL, "x", 1, SOON, &error));
    NAMES(pwk_atomic_writer_burst);
    GIVES(PWK_INVALID, pwk_atomic_writer_try_burst(writer, NULL, 1, &error));
    NAMES(pwk_atomic_writer_try_burst);
    GIVES(PWK_INVALID, pwk_atomic_writer_fits_in_burst(writer, NULL, 1, NULL, NULL, &error));
    NAMES(pwk_atomic_writer_fits_in_burst);
    GIVES(PWK_INVALID, pwk_atomic_writer_flush(NULL, SOON, &error));
    NAMES(pwk_atomic_writer_flush);
    GIVES(PWK_INVALID, pwk_atomic_writer_try_flush(NULL, &error));
    NAMES(pwk_atomic_writer_try_flush);
    GIVES(PWK_INVALID, pwk_atomic_writer_set_mixed(NULL, true, &error));
    NAMES(pwk_atomic_writer_set_mixed);
    GIVES(PWK_INVALID, pwk_atomic_writer_set_zstd(NULL, NULL, &error));
    NAMES(pwk_atomic_writer_set_zstd);
    GIVES(PWK_INVALID, pwk_atomic_writer_capacity(NULL, &count, &error));
    NAMES(pwk_atomic_writer_capacity);
    GIVES(PWK_INVALID, pwk_atomic_writer_set_capacity(NULL, 1, &count, &error));
    NAMES(pwk_atomic_writer_set_capacity);
    GIVES(PWK_INVALID, pwk_atomic_writer_set_capacity_or_max(NULL, 1, &count, &error));
    NAMES(pwk_atomic_writer_set_capacity_or_max);
    pwk_atomic_reader_free(NULL);
    pwk_atomic_writer_free(NULL);
    pwk_atomic_writer_set_max_pending(NULL, 1);
    CHECK(pwk_atomic_reader_fd(NULL) == -1 && pwk_atomic_writer_fd(NULL) == -1
          && pwk_atomic_reader_read_size(NULL) == 0);
    CHECK(!pwk_atomic_reader_is_eof(NULL) && pwk_atomic_reader_is_empty(NULL)
          && pwk_atomic_reader_buffered(NULL) == 0);
    CHECK(!pwk_atomic_reader_is_mixed(NULL) && !pwk_atomic_writer_is_mixed(NULL)
          && pwk_atomic_writer_pending(NULL) == 0);
    CHECK(pwk_atomic_writer_key(NULL).pid == 0 && pwk_atomic_writer_pipe_buf(NULL) == 0
          && pwk_atomic_writer_max_part(NULL) == 0);
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
    TEST(the_interrupt_hook_decides_whether_a_wait_goes_on),
    TEST(nobody_reads_any_more),
    TEST(options_of_other_sizes_are_understood),
    TEST(null_is_an_error_where_it_means_nothing),
};
MAIN(tests)
