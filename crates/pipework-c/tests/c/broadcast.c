/* Module broadcast. */
#include "check.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>

enum { LONG = 1 << 20 };

static pwk_broadcast *broadcast;
static pwk_publisher *publisher;
static pwk_subscriber *subscriber;
static pwk_received message;
static pwk_blobs blobs = PWK_BLOBS;
static uint64_t number;
static size_t count;

static pwk_subscriber *subscribed(uint32_t start, uint64_t after, bool must_see_all) {
    pwk_subscriber *made = NULL;
    pwk_subscriber_options options;
    pwk_subscriber_options_init(&options, sizeof options);
    CHECK(options.start == PWK_START_NOW && !options.must_see_all && options.after == 0);
    CHECK(options.max_message == PWK_DEFAULT_MAX_MESSAGE);
    options.start = start;
    options.after = after;
    options.must_see_all = must_see_all;
    OK(pwk_subscriber_new(broadcast, &options, &made, &error));
    return made;
}

/* A channel of four short messages, with a publisher and a subscriber. */
static void set_up_with(bool must_see_all) {
    pwk_broadcast_options options;
    pwk_broadcast_options_init(&options, sizeof options);
    CHECK(options.messages == PWK_UNSET && options.blobs == PWK_UNSET && !options.observers);
    CHECK(options.blob_limit == UINT64_MAX && options.max_bytes == UINT64_MAX && !options.read_only);
    options.messages = 3; /* rounded up */
    options.message_bytes = 64;
    OK(pwk_broadcast_anonymous(&options, &broadcast, &error));
    OK(pwk_publisher_new(broadcast, NULL, &publisher, &error));
    subscriber = subscribed(PWK_START_NOW, 0, must_see_all);
}

static void set_up(void) {
    set_up_with(false);
}

/* This process holds no blob of the channel any more. */
static void tear_down(void) {
    pwk_blob_stats stats;
    pwk_blobs_free(&blobs);
    pwk_subscriber_free(subscriber);
    pwk_publisher_free(publisher);
    OK(pwk_broadcast_blob_stats(broadcast, &stats, sizeof stats, &error));
    CHECK(stats.held == 0);
    pwk_broadcast_free(broadcast);
    broadcast = NULL;
    publisher = NULL;
    subscriber = NULL;
}

static bool is(const pwk_received *received, const char *text, uint64_t with_number, uint32_t flags) {
    return received->bytes.len == strlen(text) && memcmp(received->bytes.data, text, strlen(text)) == 0
           && received->number == with_number && received->flags == flags && received->blob_count == 0;
}

static void publish_numbers(int first, int last) {
    char text[16];
    for (int i = first; i <= last; i++) {
        int len = snprintf(text, sizeof text, "%d", i);
        OK(pwk_publisher_publish(publisher, text, (size_t)len, SOON, &error));
    }
}

static void every_subscriber_gets_every_message(void) {
    set_up();
    pwk_subscriber *two[2] = {subscriber, subscribed(PWK_START_NOW, 0, true)};
    GIVES(PWK_WOULD_BLOCK, pwk_subscriber_try_recv(subscriber, &message, &error));
    CHECK(error.kind == 0);
    GIVES(PWK_TIMED_OUT, pwk_subscriber_recv(subscriber, SHORT, &message, &error));
    OK(pwk_publisher_publish(publisher, "one", 3, SOON, &error));
    OK(pwk_publisher_publish_message(publisher, "two", 3, 7, SOON, &number, &error));
    CHECK(number == 2 && pwk_broadcast_newest(broadcast) == 2 && pwk_broadcast_newest(NULL) == 0);
    OK(pwk_publisher_try_publish(publisher, "three", 5, &error));
    OK(pwk_publisher_try_publish_message(publisher, NULL, 0, UINT32_MAX, &number, &error));
    CHECK(number == 4);
    for (int i = 0; i < 2; i++) {
        CHECK(pwk_subscriber_lag(two[i]) == 4);
        OK(pwk_subscriber_recv(two[i], SOON, &message, &error));
        CHECK(is(&message, "one", 1, 0));
        OK(pwk_subscriber_try_recv(two[i], &message, &error));
        CHECK(is(&message, "two", 2, 7));
        OK(pwk_subscriber_recv(two[i], SOON, &message, NULL));
        CHECK(is(&message, "three", 3, 0));
        OK(pwk_subscriber_recv(two[i], SOON, &message, &error));
        CHECK(is(&message, "", 4, UINT32_MAX) && pwk_subscriber_lag(two[i]) == 0);
    }
    CHECK(pwk_subscriber_lag(NULL) == 0);
    pwk_subscriber_free(two[1]);
    tear_down();
}

static void many_messages_are_published_at_once(void) {
    const pwk_bytes some[3] = {{"one", 3}, {NULL, 0}, {"three", 5}};
    const pwk_bytes bad[2] = {{"one", 3}, {NULL, 1}};
    const pwk_message others[2] = {{.data = "four", .len = 4, .flags = 4}, {.data = "five", .len = 4, .flags = 5}};
    set_up_with(true);
    OK(pwk_publisher_publish_many(publisher, some, 3, 9, SOON, &number, &error));
    CHECK(number == 3);
    const char *texts[] = {"one", "", "three"};
    for (uint64_t i = 0; i < 3; i++) {
        OK(pwk_subscriber_recv(subscriber, SOON, &message, &error));
        CHECK(is(&message, texts[i], i + 1, 9));
    }
    OK(pwk_publisher_publish_many_blobs(publisher, others, 2, SOON, &number, &error));
    CHECK(number == 5);
    OK(pwk_publisher_publish_many(publisher, NULL, 0, 0, SOON, &number, &error));
    CHECK(number == 0);
    GIVES(PWK_INVALID, pwk_publisher_publish_many(publisher, bad, 2, 0, SOON, &number, &error));
    /* There is room for two more. */
    GIVES(PWK_TIMED_OUT, pwk_publisher_publish_many(publisher, some, 3, 0, SHORT, &number, &error));
    CHECK(error.done == 2 && pwk_error_process(&error) == (uint32_t)getpid());
    GIVES(PWK_TIMED_OUT, pwk_publisher_publish_many_blobs(publisher, others, 2, SHORT, &number, &error));
    CHECK(error.done == 0);
    for (uint32_t i = 4; i <= 5; i++) {
        OK(pwk_subscriber_recv(subscriber, SOON, &message, &error));
        CHECK(is(&message, i == 4 ? "four" : "five", i, i));
    }
    tear_down();
}

static void a_subscriber_begins_where_it_says(void) {
    set_up();
    publish_numbers(1, 6);
    const struct {
        uint32_t start;
        uint64_t after, first;
    } cases[] = {
        {PWK_START_OLDEST, 0, 3}, {PWK_START_LATEST, 0, 6}, {PWK_START_AFTER, 4, 5}, {PWK_START_AFTER, 2, 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pwk_subscriber *one = subscribed(cases[i].start, cases[i].after, false);
        OK(pwk_subscriber_recv(one, SOON, &message, &error));
        CHECK(message.number == cases[i].first);
        pwk_subscriber_free(one);
    }
    pwk_subscriber *behind = subscribed(PWK_START_AFTER, 1, false), *now = subscribed(PWK_START_NOW, 0, false);
    GIVES(PWK_LAGGED, pwk_subscriber_recv(behind, SOON, &message, &error));
    CHECK(error.done == 1);
    GIVES(PWK_WOULD_BLOCK, pwk_subscriber_try_recv(now, &message, &error));
    pwk_subscriber_free(behind);
    pwk_subscriber_free(now);

    pwk_subscriber *none = NULL;
    pwk_subscriber_options options;
    pwk_subscriber_options_init(&options, sizeof options);
    options.start = 4;
    GIVES(PWK_INVALID, pwk_subscriber_new(broadcast, &options, &none, &error));
    NAMES(pwk_subscriber_new);
    options.start = PWK_START_AFTER;
    options.after = 7;
    GIVES(PWK_INVALID, pwk_subscriber_new(broadcast, &options, &none, &error));
    tear_down();
}

static void one_that_lags_gets_the_number_of_messages_that_it_missed(void) {
    char text[128];
    set_up();
    publish_numbers(1, 10);
    CHECK(pwk_subscriber_lag(subscriber) == 10);
    message.number = 77;
    GIVES(PWK_LAGGED, pwk_subscriber_recv(subscriber, SOON, &message, &error));
    CHECK(error.kind == PWK_LAGGED && error.done == 6 && message.number == 77);
    pwk_error_text(&error, text, sizeof text);
    CHECK(strcmp(text, "broadcast recv: messages were missed; 6 missed") == 0);
    OK(pwk_subscriber_try_recv(subscriber, &message, &error));
    CHECK(is(&message, "7", 7, 0));

    OK(pwk_subscriber_recv_latest(subscriber, SOON, &message, &error));
    CHECK(is(&message, "10", 10, 0));
    GIVES(PWK_TIMED_OUT, pwk_subscriber_recv_latest(subscriber, SHORT, &message, &error));
    GIVES(PWK_WOULD_BLOCK, pwk_subscriber_try_recv_latest(subscriber, &message, &error));
    publish_numbers(11, 19);
    OK(pwk_subscriber_try_recv_latest(subscriber, &message, &error));
    CHECK(is(&message, "19", 19, 0));
    publish_numbers(20, 25);
    GIVES(PWK_LAGGED, pwk_subscriber_try_recv(subscriber, &message, &error));
    CHECK(error.done == 2);
    tear_down();
}

static void one_that_must_see_all_holds_publishers_up_and_is_named(void) {
    char text[128], wanted[64];
    set_up_with(true);
    publish_numbers(1, 4);
    GIVES(PWK_WOULD_BLOCK, pwk_publisher_try_publish(publisher, "5", 1, &error));
    CHECK(error.kind == 0);
    GIVES(PWK_WOULD_BLOCK, pwk_publisher_try_publish_message(publisher, "5", 1, 0, &number, &error));
    GIVES(PWK_TIMED_OUT, pwk_publisher_publish_message(publisher, "5", 1, 0, SHORT, &number, &error));
    GIVES(PWK_TIMED_OUT, pwk_publisher_publish(publisher, "5", 1, SHORT, &error));
    CHECK(pwk_error_process(&error) == (uint32_t)getpid() && error.done == 0);
    pwk_error_text(&error, text, sizeof text);
    snprintf(wanted, sizeof wanted, "the deadline has passed while it waited for process %d", (int)getpid());
    CHECK(strstr(text, wanted) != NULL);
    for (int i = 1; i <= 4; i++) {
        OK(pwk_subscriber_recv(subscriber, SOON, &message, &error));
        CHECK(message.number == (uint64_t)i);
    }
    publish_numbers(5, 8);
    /* One that leaves is waited for no longer. */
    pwk_subscriber_free(subscriber);
    subscriber = NULL;
    publish_numbers(9, 12);
    tear_down();
}

static void long_messages_are_lent(void) {
    char *bytes = malloc(LONG);
    set_up();
    for (int i = 0; i < LONG; i++) bytes[i] = (char)(i * 7 + i / 256);
    OK(pwk_publisher_publish_message(publisher, bytes, LONG, 7, SOON, &number, &error));
    OK(pwk_subscriber_recv(subscriber, SOON, &message, &error));
    CHECK(message.number == number && message.flags == 7 && message.blob_count == 0);
    /* It stays while the ring goes on, until the next message is received. */
    publish_numbers(2, 12);
    CHECK(message.bytes.len == LONG && memcmp(message.bytes.data, bytes, LONG) == 0);
    OK(pwk_subscriber_recv_latest(subscriber, SOON, &message, &error));

    pwk_publisher *small = NULL;
    pwk_publisher_options publishes;
    pwk_publisher_options_init(&publishes, sizeof publishes);
    CHECK(publishes.max_message == PWK_DEFAULT_MAX_MESSAGE && publishes.keep_bytes == PWK_DEFAULT_KEEP_BYTES);
    publishes.max_message = 1000;
    publishes.keep_bytes = 2000;
    OK(pwk_publisher_new(broadcast, &publishes, &small, &error));
    GIVES(PWK_TOO_LONG, pwk_publisher_publish(small, bytes, 1001, SOON, &error));
    /* The ring keeps two of them. */
    for (int i = 0; i < 3; i++) OK(pwk_publisher_publish(small, bytes, 1000, SOON, &error));
    GIVES(PWK_LAGGED, pwk_subscriber_recv(subscriber, SOON, &message, &error));
    CHECK(error.done == 1);
    pwk_publisher_free(small);

    pwk_subscriber *short_one = NULL;
    pwk_subscriber_options receives;
    pwk_subscriber_options_init(&receives, sizeof receives);
    receives.max_message = 1000;
    OK(pwk_subscriber_new(broadcast, &receives, &short_one, &error));
    OK(pwk_publisher_publish(publisher, bytes, 1001, SOON, &error));
    OK(pwk_publisher_publish(publisher, bytes, 1000, SOON, &error));
    GIVES(PWK_TOO_LONG, pwk_subscriber_recv(short_one, SOON, &message, &error));
    OK(pwk_subscriber_recv(short_one, SOON, &message, &error));
    CHECK(message.bytes.len == 1000 && memcmp(message.bytes.data, bytes, 1000) == 0);
    pwk_subscriber_free(short_one);
    free(bytes);
    tear_down();
}

/* A blob of `len` bytes, all of them `byte`. */
static pwk_blob *filled(size_t len, char byte) {
    pwk_blob_draft *draft = NULL;
    pwk_blob *blob = NULL;
    OK(pwk_blob_draft_for_broadcast(broadcast, len, &draft, &error));
    memset(pwk_blob_draft_space(draft).data, byte, len);
    OK(pwk_blob_draft_freeze(draft, &blob, &error));
    pwk_blob_draft_free(draft);
    return blob;
}

static bool is_filled(pwk_blob *blob, size_t len, char byte) {
    pwk_bytes bytes = pwk_blob_bytes(blob);
    const char *first = bytes.data;
    for (size_t i = 0; i < bytes.len; i++) {
        if (first[i] != byte) return false;
    }
    return bytes.len == len;
}

static void blobs_go_to_every_subscriber(void) {
    pwk_broadcast_options options;
    pwk_broadcast_options_init(&options, sizeof options);
    options.messages = 4;
    options.blobs = 2;
    OK(pwk_broadcast_anonymous(&options, &broadcast, &error));
    OK(pwk_publisher_new(broadcast, NULL, &publisher, &error));
    subscriber = subscribed(PWK_START_NOW, 0, false);
    GIVES(PWK_STALE, pwk_subscriber_blobs(subscriber, &blobs, &error));
    pwk_blob *two[3] = {filled(LONG, 'a'), filled(3, 'b'), NULL};
    pwk_message sent = {.data = "look", .len = 4, .blobs = two, .blob_count = 2, .flags = 5};
    OK(pwk_publisher_publish_blobs(publisher, &sent, SOON, &number, &error));
    OK(pwk_publisher_try_publish_blobs(publisher, &sent, &number, &error));
    OK(pwk_publisher_publish_many_blobs(publisher, &sent, 1, SOON, &number, &error));
    CHECK(number == 3);
    two[2] = two[1];
    sent.blob_count = 3;
    GIVES(PWK_TOO_LONG, pwk_publisher_publish_blobs(publisher, &sent, SOON, &number, &error));
    GIVES(PWK_TOO_LONG, pwk_publisher_try_publish_blobs(publisher, &sent, &number, &error));
    pwk_blob_free(two[0]);
    pwk_blob_free(two[1]);
    for (uint64_t i = 1; i <= 3; i++) {
        OK(pwk_subscriber_recv(subscriber, SOON, &message, &error));
        CHECK(message.number == i && message.flags == 5 && message.bytes.len == 4 && message.blob_count == 2);
        for (int again = 0; again < 2; again++) {
            OK(pwk_subscriber_blobs(subscriber, &blobs, &error));
            CHECK(blobs.count == 2 && is_filled(blobs.blobs[0], LONG, 'a') && is_filled(blobs.blobs[1], 3, 'b'));
        }
    }
    publish_numbers(4, 12);
    GIVES(PWK_LAGGED, pwk_subscriber_recv(subscriber, SOON, &message, &error));
    CHECK(is_filled(blobs.blobs[0], LONG, 'a'));
    GIVES(PWK_STALE, pwk_subscriber_blobs(subscriber, &blobs, &error));
    CHECK(blobs.count == 0);
    OK(pwk_subscriber_recv(subscriber, SOON, &message, &error));
    OK(pwk_subscriber_blobs(subscriber, &blobs, &error));
    CHECK(blobs.count == 0);
    tear_down();
}

/* Whether a doorbell becomes readable soon, or is not readable now. */
static bool rings(int fd, int timeout_ms) {
    struct pollfd polled = {.fd = fd, .events = POLLIN};
    return poll(&polled, 1, timeout_ms) == 1;
}

static void event_loops_have_doorbells(void) {
    int bell = -1, room = -1;
    set_up_with(true);
    OK(pwk_subscriber_doorbell(subscriber, &bell, &error));
    OK(pwk_publisher_doorbell(publisher, &room, &error));
    GIVES(PWK_WOULD_BLOCK, pwk_subscriber_try_recv(subscriber, &message, &error));
    CHECK(!rings(bell, 30));
    publish_numbers(1, 4);
    CHECK(rings(bell, 20000));
    GIVES(PWK_WOULD_BLOCK, pwk_publisher_try_publish(publisher, "5", 1, &error));
    CHECK(!rings(room, 30));
    OK(pwk_subscriber_try_recv(subscriber, &message, &error));
    CHECK(rings(room, 20000));
    OK(pwk_publisher_try_publish(publisher, "5", 1, &error));
    for (int i = 2; i <= 5; i++) OK(pwk_subscriber_try_recv(subscriber, &message, &error));
    GIVES(PWK_WOULD_BLOCK, pwk_subscriber_try_recv(subscriber, &message, &error));
    CHECK(!rings(bell, 30));
    close(bell);
    close(room);
    tear_down();
}

static void a_child_is_a_member_of_its_own(void) {
    pwk_broadcast_member members[8];
    set_up_with(true);
    publish_numbers(1, 2);
    pid_t child = fork();
    if (child == 0) {
        OK(pwk_subscriber_recv(subscriber, SOON, &message, &error));
        CHECK(is(&message, "1", 1, 0));
        OK(pwk_publisher_publish(publisher, "from the child", 14, SOON, &error));
        OK(pwk_broadcast_members(broadcast, members, 8, &count, &error));
        CHECK(count == 4);
        _exit(0);
    }
    reap(child);
    for (uint64_t i = 1; i <= 3; i++) {
        OK(pwk_subscriber_recv(subscriber, SOON, &message, &error));
        CHECK(message.number == i);
    }
    CHECK(is(&message, "from the child", 3, 0));
    /* The child has left nothing that publishers wait for. */
    publish_numbers(4, 7);
    tear_down();
}

static void the_death_of_a_subscriber_sets_publishers_free(void) {
    int ready[2];
    char byte;
    set_up();
    CHECK(pipe(ready) == 0);
    pid_t child = fork();
    if (child == 0) {
        subscribed(PWK_START_NOW, 0, true);
        CHECK(write(ready[1], "x", 1) == 1);
        pause();
        _exit(0);
    }
    CHECK(read(ready[0], &byte, 1) == 1);
    publish_numbers(1, 4);
    GIVES(PWK_TIMED_OUT, pwk_publisher_publish(publisher, "5", 1, SHORT, &error));
    CHECK(pwk_error_process(&error) == (uint32_t)child);
    kill(child, SIGKILL);
    CHECK(waitpid(child, NULL, 0) == child);
    publish_numbers(5, 5);
    OK(pwk_broadcast_recover(broadcast, &count, &error));
    close(ready[0]);
    close(ready[1]);
    tear_down();
}

static void a_signal_ends_every_wait_and_nothing_is_lost(void) {
    struct signals signals;
    set_up_with(true);
    begin(&signals);
    GIVES(PWK_INTERRUPTED, pwk_subscriber_recv(subscriber, SOON, &message, &error));
    GIVES(PWK_INTERRUPTED, pwk_subscriber_recv_latest(subscriber, SOON, &message, &error));
    publish_numbers(1, 4);
    GIVES(PWK_INTERRUPTED, pwk_publisher_publish(publisher, "5", 1, SOON, &error));
    end(&signals);
    for (uint64_t i = 1; i <= 4; i++) {
        OK(pwk_subscriber_recv(subscriber, SOON, &message, &error));
        CHECK(message.number == i);
    }
    GIVES(PWK_WOULD_BLOCK, pwk_subscriber_try_recv(subscriber, &message, &error));
    tear_down();
}

enum { EACH = 5000 };

static void *publish_often(void *none) {
    for (int i = 0; i < EACH; i++) OK(pwk_publisher_publish(publisher, "hello", 5, SOON, &error));
    return none;
}

static void threads_share_a_publisher(void) {
    pthread_t threads[2];
    set_up_with(true);
    for (int i = 0; i < 2; i++) threads[i] = started(publish_often, NULL);
    for (uint64_t i = 1; i <= 2 * EACH; i++) {
        OK(pwk_subscriber_recv(subscriber, SOON, &message, &error));
        CHECK(is(&message, "hello", i, 0));
    }
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    tear_down();
}

static void options_of_other_sizes_are_understood(void) {
    pwk_broadcast_sizes sizes;
    pwk_broadcast *other = NULL;
    struct {
        pwk_broadcast_options options;
        uint64_t later;
    } later;
    memset(&later, 0, sizeof later);
    pwk_broadcast_options_init(&later.options, sizeof later);
    CHECK(later.options.size == sizeof later && later.later == 0);
    later.options.messages = 2;
    OK(pwk_broadcast_anonymous(&later.options, &other, &error));
    OK(pwk_broadcast_geometry(other, &sizes, sizeof sizes, &error));
    CHECK(sizes.messages == 2 && sizes.message_bytes == PWK_DEFAULT_MESSAGE_BYTES && sizes.observers == 0);
    CHECK(sizes.members == PWK_DEFAULT_MEMBERS && sizes.blobs == PWK_MAX_BLOBS);
    pwk_broadcast_free(other);
    other = NULL;
    later.later = 1;
    GIVES(PWK_INVALID, pwk_broadcast_anonymous(&later.options, &other, &error));
    later.options.size = 0;
    GIVES(PWK_INVALID, pwk_broadcast_anonymous(&later.options, &other, &error));
    pwk_broadcast_options_init(&later.options, sizeof later.options);
    later.options.messages = 1;
    GIVES(PWK_INVALID, pwk_broadcast_anonymous(&later.options, &other, &error));
    CHECK(other == NULL);
}

static void a_channel_has_a_path(void) {
    char path[64];
    bool removed;
    pwk_broadcast_sizes sizes;
    pwk_broadcast_options options;
    pwk_broadcast *other = NULL, *none = NULL;
    snprintf(path, sizeof path, "/dev/shm/pwk-test-broadcast-%d", (int)getpid());
    OK(pwk_broadcast_create(path, NULL, &broadcast, &error));
    CHECK(strcmp(pwk_broadcast_path(broadcast), path) == 0);
    GIVES(PWK_OS, pwk_broadcast_create(path, NULL, &other, &error));
    CHECK(error.os == EEXIST);
    OK(pwk_broadcast_open(path, NULL, &other, &error));
    pwk_broadcast_free(other);
    OK(pwk_broadcast_open_or_create(path, NULL, &other, &error));
    OK(pwk_broadcast_geometry_of_path(path, &sizes, sizeof sizes, &error));
    CHECK(sizes.messages == PWK_DEFAULT_MESSAGES && sizes.message_bytes == 1024);
    pwk_broadcast_options_init(&options, sizeof options);
    options.messages = 4;
    GIVES(PWK_INCOMPATIBLE, pwk_broadcast_open(path, &options, &none, &error));
    pwk_broadcast_options_init(&options, sizeof options);
    options.observers = true;
    GIVES(PWK_INCOMPATIBLE, pwk_broadcast_open(path, &options, &none, &error));
    /* Calls have other segments. */
    pwk_segment *calls = NULL;
    GIVES(PWK_INCOMPATIBLE, pwk_segment_open(path, NULL, &calls, &error));
    OK(pwk_broadcast_sync(broadcast, &error));
    OK(pwk_broadcast_unlink(broadcast, &removed, &error));
    CHECK(removed);
    OK(pwk_broadcast_unlink(other, &removed, &error));
    CHECK(!removed);
    pwk_broadcast_free(other);
    GIVES(PWK_OS, pwk_broadcast_open(path, NULL, &none, &error));
    GIVES(PWK_OS, pwk_broadcast_geometry_of_path(path, &sizes, sizeof sizes, &error));
    CHECK(error.os == ENOENT);
    GIVES(PWK_OS, pwk_broadcast_open_or_create("/nowhere/at/all", NULL, &none, &error));
    pwk_broadcast_free(broadcast);
    broadcast = NULL;
}

static void one_that_may_only_read_subscribes(void) {
    char path[64];
    pwk_broadcast_options options;
    pwk_broadcast_member members[2];
    pwk_broadcast *reading = NULL, *none = NULL;
    pwk_subscriber *observer = NULL, *nobody = NULL;
    pwk_publisher *neither = NULL;
    pwk_blob_draft *draft = NULL;
    int bell;
    snprintf(path, sizeof path, "/dev/shm/pwk-test-observers-%d", (int)getpid());
    pwk_broadcast_options_init(&options, sizeof options);
    options.observers = true;
    options.mode = 0644;
    OK(pwk_broadcast_create(path, &options, &broadcast, &error));
    OK(pwk_publisher_new(broadcast, NULL, &publisher, &error));
    pwk_broadcast_options_init(&options, sizeof options);
    options.read_only = true;
    GIVES(PWK_INVALID, pwk_broadcast_open_or_create(path, &options, &none, &error));
    OK(pwk_broadcast_open(path, &options, &reading, &error));
    OK(pwk_subscriber_new(reading, NULL, &observer, &error));
    publish_numbers(1, 2);
    OK(pwk_subscriber_recv(observer, SOON, &message, &error));
    CHECK(is(&message, "1", 1, 0));
    OK(pwk_broadcast_members(reading, members, 2, &count, &error));
    CHECK(count == 1 && members[0].role == PWK_PUBLISHER);
    GIVES(PWK_UNSUPPORTED, pwk_publisher_new(reading, NULL, &neither, &error));
    GIVES(PWK_UNSUPPORTED, pwk_subscriber_doorbell(observer, &bell, &error));
    GIVES(PWK_UNSUPPORTED, pwk_blob_draft_for_broadcast(reading, 1, &draft, &error));
    GIVES(PWK_UNSUPPORTED, pwk_broadcast_unlink(reading, NULL, &error));
    GIVES(PWK_UNSUPPORTED, pwk_broadcast_recover(reading, NULL, &error));
    pwk_subscriber_options must;
    pwk_subscriber_options_init(&must, sizeof must);
    must.must_see_all = true;
    GIVES(PWK_UNSUPPORTED, pwk_subscriber_new(reading, &must, &nobody, &error));
    pwk_subscriber_free(observer);
    pwk_broadcast_free(reading);
    OK(pwk_broadcast_unlink(broadcast, NULL, &error));
    tear_down();
}

static void a_channel_is_passed_on_by_its_descriptor(void) {
    pwk_broadcast *other = NULL;
    OK(pwk_broadcast_memfd("for others", NULL, &broadcast, &error));
    CHECK(pwk_broadcast_path(broadcast) == NULL && pwk_broadcast_fd(broadcast) >= 0
          && pwk_broadcast_fd(NULL) == -1);
    OK(pwk_broadcast_from_fd(pwk_broadcast_fd(broadcast), PWK_FD_DUP, NULL, &other, &error));
    pwk_broadcast_free(other);
    int copy = dup(pwk_broadcast_fd(broadcast));
    OK(pwk_broadcast_from_fd(copy, PWK_FD_TAKE, NULL, &other, &error));
    pwk_broadcast_free(other);
    CHECK(fcntl(copy, F_GETFD) == -1);
    other = NULL;
    GIVES(PWK_INVALID, pwk_broadcast_from_fd(pwk_broadcast_fd(broadcast), PWK_FD_LEND, NULL, &other, &error));
    GIVES(PWK_INVALID, pwk_broadcast_from_fd(-1, PWK_FD_DUP, NULL, &other, &error));
    GIVES(PWK_INVALID, pwk_broadcast_memfd("\xFF", NULL, &other, &error));
    GIVES(PWK_INVALID, pwk_broadcast_unlink(broadcast, NULL, &error));
    pwk_broadcast_free(broadcast);
    broadcast = NULL;
}

static void a_channel_reports(void) {
    pwk_broadcast_counts counts;
    pwk_broadcast_cells cells;
    pwk_broadcast_member members[4];
    set_up_with(true);
    publish_numbers(1, 3);
    OK(pwk_subscriber_recv(subscriber, SOON, &message, &error));
    OK(pwk_broadcast_stats(broadcast, &counts, sizeof counts, &error));
    CHECK(counts.published == 3 && counts.missed == 0 && counts.skipped == 0 && counts.dead_members == 0);
    OK(pwk_broadcast_audit(broadcast, &cells, sizeof cells, &error));
    CHECK(cells.done == 3 && cells.empty == 1 && cells.writing == 0 && cells.orphaned == 0);
    OK(pwk_broadcast_members(broadcast, members, 4, &count, &error));
    CHECK(count == 2);
    for (size_t i = 0; i < count; i++) {
        bool is_subscriber = members[i].role == PWK_SUBSCRIBER;
        CHECK(is_subscriber || members[i].role == PWK_PUBLISHER);
        CHECK(members[i].pid == (uint32_t)getpid() && members[i].is_alive == 1 && members[i].since_ns > 0);
        CHECK(members[i].must_see_all == is_subscriber && members[i].lag == (is_subscriber ? 2 : 0));
    }
    OK(pwk_broadcast_members(broadcast, members, 1, &count, &error));
    CHECK(count == 2);
    OK(pwk_broadcast_recover(broadcast, &count, &error));
    CHECK(count == 0);
    OK(pwk_broadcast_sync(broadcast, &error));
    CHECK(pwk_broadcast_fd(pwk_publisher_broadcast(publisher)) == pwk_broadcast_fd(broadcast));
    CHECK(pwk_broadcast_fd(pwk_subscriber_broadcast(subscriber)) == pwk_broadcast_fd(broadcast));
    tear_down();
}

static void null_is_an_error_where_it_means_nothing(void) {
    pwk_broadcast *none = NULL;
    pwk_publisher *nobody = NULL;
    pwk_subscriber *neither = NULL;
    pwk_blob_draft *draft = NULL;
    pwk_blob_stats stats;
    pwk_broadcast_sizes sizes;
    pwk_broadcast_counts counts;
    pwk_broadcast_cells cells;
    pwk_message sent = {.data = "x", .len = 1};
    pwk_bytes bytes = {"x", 1};
    int fd;
    set_up();
    pwk_broadcast_options_init(NULL, sizeof(pwk_broadcast_options));
    pwk_publisher_options_init(NULL, sizeof(pwk_publisher_options));
    pwk_subscriber_options_init(NULL, sizeof(pwk_subscriber_options));
    GIVES(PWK_INVALID, pwk_broadcast_create(NULL, NULL, &none, &error));
    NAMES(pwk_broadcast_create);
    GIVES(PWK_INVALID, pwk_broadcast_open(NULL, NULL, &none, &error));
    NAMES(pwk_broadcast_open);
    GIVES(PWK_INVALID, pwk_broadcast_open_or_create(NULL, NULL, &none, &error));
    NAMES(pwk_broadcast_open_or_create);
    GIVES(PWK_INVALID, pwk_broadcast_anonymous(NULL, NULL, &error));
    NAMES(pwk_broadcast_anonymous);
    GIVES(PWK_INVALID, pwk_broadcast_memfd(NULL, NULL, &none, &error));
    NAMES(pwk_broadcast_memfd);
    GIVES(PWK_INVALID, pwk_broadcast_geometry_of_path(NULL, &sizes, sizeof sizes, &error));
    NAMES(pwk_broadcast_geometry_of_path);
    GIVES(PWK_INVALID, pwk_broadcast_geometry(NULL, &sizes, sizeof sizes, &error));
    NAMES(pwk_broadcast_geometry);
    GIVES(PWK_INVALID, pwk_broadcast_geometry(broadcast, &sizes, 0, &error));
    GIVES(PWK_INVALID, pwk_broadcast_unlink(NULL, NULL, &error));
    NAMES(pwk_broadcast_unlink);
    GIVES(PWK_INVALID, pwk_broadcast_sync(NULL, &error));
    NAMES(pwk_broadcast_sync);
    GIVES(PWK_INVALID, pwk_broadcast_recover(NULL, NULL, &error));
    NAMES(pwk_broadcast_recover);
    GIVES(PWK_INVALID, pwk_broadcast_stats(NULL, &counts, sizeof counts, &error));
    NAMES(pwk_broadcast_stats);
    GIVES(PWK_INVALID, pwk_broadcast_blob_stats(NULL, &stats, sizeof stats, &error));
    NAMES(pwk_broadcast_blob_stats);
    GIVES(PWK_INVALID, pwk_broadcast_members(broadcast, NULL, 0, NULL, &error));
    NAMES(pwk_broadcast_members);
    GIVES(PWK_INVALID, pwk_broadcast_audit(NULL, &cells, sizeof cells, &error));
    NAMES(pwk_broadcast_audit);
    GIVES(PWK_INVALID, pwk_blob_draft_for_broadcast(NULL, 1, &draft, &error));
    NAMES(pwk_blob_draft_for_broadcast);

    GIVES(PWK_INVALID, pwk_publisher_new(NULL, NULL, &nobody, &error));
    NAMES(pwk_publisher_new);
    GIVES(PWK_INVALID, pwk_publisher_new(broadcast, NULL, NULL, NULL));
    GIVES(PWK_INVALID, pwk_publisher_publish(NULL, "x", 1, SOON, &error));
    NAMES(pwk_publisher_publish);
    GIVES(PWK_INVALID, pwk_publisher_publish(publisher, NULL, 1, SOON, &error));
    GIVES(PWK_INVALID, pwk_publisher_publish_message(NULL, "x", 1, 0, SOON, NULL, &error));
    NAMES(pwk_publisher_publish_message);
    GIVES(PWK_INVALID, pwk_publisher_publish_blobs(publisher, NULL, SOON, NULL, &error));
    NAMES(pwk_publisher_publish_blobs);
    GIVES(PWK_INVALID, pwk_publisher_try_publish(NULL, "x", 1, &error));
    NAMES(pwk_publisher_try_publish);
    GIVES(PWK_INVALID, pwk_publisher_try_publish_message(NULL, "x", 1, 0, NULL, &error));
    NAMES(pwk_publisher_try_publish_message);
    GIVES(PWK_INVALID, pwk_publisher_try_publish_blobs(NULL, &sent, NULL, &error));
    NAMES(pwk_publisher_try_publish_blobs);
    GIVES(PWK_INVALID, pwk_publisher_publish_many(NULL, &bytes, 1, 0, SOON, NULL, &error));
    NAMES(pwk_publisher_publish_many);
    GIVES(PWK_INVALID, pwk_publisher_publish_many_blobs(NULL, &sent, 1, SOON, NULL, &error));
    NAMES(pwk_publisher_publish_many_blobs);
    GIVES(PWK_INVALID, pwk_publisher_doorbell(publisher, NULL, &error));
    NAMES(pwk_publisher_doorbell);

    GIVES(PWK_INVALID, pwk_subscriber_new(NULL, NULL, &neither, &error));
    NAMES(pwk_subscriber_new);
    GIVES(PWK_INVALID, pwk_subscriber_recv(NULL, SOON, &message, &error));
    NAMES(pwk_subscriber_recv);
    GIVES(PWK_INVALID, pwk_subscriber_try_recv(NULL, &message, &error));
    NAMES(pwk_subscriber_try_recv);
    GIVES(PWK_INVALID, pwk_subscriber_recv_latest(NULL, SOON, &message, &error));
    NAMES(pwk_subscriber_recv_latest);
    GIVES(PWK_INVALID, pwk_subscriber_try_recv_latest(NULL, &message, &error));
    NAMES(pwk_subscriber_try_recv_latest);
    GIVES(PWK_INVALID, pwk_subscriber_blobs(subscriber, NULL, &error));
    NAMES(pwk_subscriber_blobs);
    GIVES(PWK_INVALID, pwk_subscriber_doorbell(NULL, &fd, &error));
    NAMES(pwk_subscriber_doorbell);
    /* A message that is not wanted is received all the same. */
    publish_numbers(1, 1);
    OK(pwk_subscriber_recv(subscriber, SOON, NULL, &error));
    pwk_broadcast_free(NULL);
    pwk_publisher_free(NULL);
    pwk_subscriber_free(NULL);
    CHECK(pwk_broadcast_path(NULL) == NULL);
    CHECK(pwk_publisher_broadcast(NULL) == NULL && pwk_subscriber_broadcast(NULL) == NULL);
    tear_down();
}

static const struct test tests[] = {
    TEST(every_subscriber_gets_every_message),
    TEST(many_messages_are_published_at_once),
    TEST(a_subscriber_begins_where_it_says),
    TEST(one_that_lags_gets_the_number_of_messages_that_it_missed),
    TEST(one_that_must_see_all_holds_publishers_up_and_is_named),
    TEST(long_messages_are_lent),
    TEST(blobs_go_to_every_subscriber),
    TEST(event_loops_have_doorbells),
    TEST(a_child_is_a_member_of_its_own),
    TEST(the_death_of_a_subscriber_sets_publishers_free),
    TEST(a_signal_ends_every_wait_and_nothing_is_lost),
    TEST(threads_share_a_publisher),
    TEST(options_of_other_sizes_are_understood),
    TEST(a_channel_has_a_path),
    TEST(one_that_may_only_read_subscribes),
    TEST(a_channel_is_passed_on_by_its_descriptor),
    TEST(a_channel_reports),
    TEST(null_is_an_error_where_it_means_nothing),
};
MAIN(tests)
