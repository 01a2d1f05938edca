/* Blobs of module reqrep. */
#include "check.h"

#include <glob.h>

enum { LONG = 1 << 20 };

static pwk_segment *segment;
static pwk_client *client;
static pwk_server *server;
static pwk_buffer data = PWK_BUFFER, reply = PWK_BUFFER;
static pwk_blobs blobs = PWK_BLOBS;
static pwk_request request;
static uint64_t ticket;
static uint32_t flags;
static bool answer;

static void attach(void) {
    OK(pwk_client_new(segment, NULL, &client, &error));
    OK(pwk_server_new(segment, NULL, &server, &error));
}

static void set_up(void) {
    pwk_segment_options options;
    pwk_segment_options_init(&options, sizeof options);
    CHECK(options.blobs == PWK_UNSET && options.blob_pool == PWK_DEFAULT_BLOB_POOL);
    CHECK(options.blob_limit == UINT64_MAX);
    options.slots = 4;
    options.blobs = 3;
    options.blob_limit = 4 * LONG;
    OK(pwk_segment_anonymous(&options, &segment, &error));
    attach();
}

/* This process holds no blob of the segment any more. */
static void tear_down(void) {
    pwk_blob_stats stats;
    pwk_blobs_free(&blobs);
    pwk_client_free(client);
    pwk_server_free(server);
    OK(pwk_segment_blob_stats(segment, &stats, sizeof stats, &error));
    CHECK(stats.held == 0);
    pwk_segment_free(segment);
    client = NULL;
    server = NULL;
    segment = NULL;
    pwk_buffer_free(&data);
    pwk_buffer_free(&reply);
}

/* A blob of `len` bytes, all of them `byte`. */
static pwk_blob *filled(size_t len, char byte) {
    pwk_blob_draft *draft = NULL;
    pwk_blob *blob = NULL;
    OK(pwk_blob_draft_new(segment, len, &draft, &error));
    pwk_space space = pwk_blob_draft_space(draft);
    CHECK(space.len == len && (uintptr_t)space.data % 4096 == 0);
    memset(space.data, byte, len);
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

static pwk_message with(const char *text, pwk_blob *const *attached, size_t count) {
    pwk_message message = {.data = text, .len = strlen(text), .blobs = attached, .blob_count = count, .flags = 7};
    return message;
}

static void blobs_travel_both_ways_in_every_form_of_a_call(void) {
    set_up();
    pwk_blob *two[2] = {filled(LONG, 'a'), filled(3, 'b')};
    pwk_message ask = with("ask", two, 2), bare = with("bare", NULL, 0);
    for (int form = 0; form < 4; form++) {
        if (form % 2 == 0) {
            OK(pwk_client_send_blobs(client, &ask, SOON, &ticket, &error));
        } else {
            OK(pwk_client_try_send_blobs(client, &ask, &ticket, &error));
        }
        OK(pwk_server_recv(server, SOON, &data, &request, &error));
        CHECK(holds(&data, "ask") && request.flags == 7);
        for (int again = 0; again < 2; again++) {
            OK(pwk_server_blobs(server, request.ticket, &blobs, &error));
            CHECK(blobs.count == 2 && blobs.blobs[2] == NULL);
            CHECK(is_filled(blobs.blobs[0], LONG, 'a') && is_filled(blobs.blobs[1], 3, 'b'));
        }
        pwk_message answered = with("answer", blobs.blobs, 1);
        OK(pwk_server_reply_blobs(server, request.ticket, &answered, SOON, &answer, &error));
        CHECK(answer);
        pwk_blobs_free(&blobs);
        CHECK(blobs.count == 0 && blobs.blobs[0] == NULL);
        uint64_t done = ticket;
        if (form == 0) {
            OK(pwk_client_recv_blobs(client, ticket, SOON, &reply, &flags, &blobs, &error));
        } else if (form == 1) {
            OK(pwk_client_try_recv_blobs(client, ticket, &reply, &flags, &blobs, &error));
        } else if (form == 2) {
            OK(pwk_client_recv_any_blobs(client, SOON, &done, &reply, &flags, &blobs, &error));
        } else {
            OK(pwk_client_recv_blobs(client, ticket, SOON, &reply, NULL, NULL, &error));
        }
        CHECK(done == ticket && holds(&reply, "answer") && flags == 7);
        CHECK(form == 3 || (blobs.count == 1 && is_filled(blobs.blobs[0], LONG, 'a')));
        CHECK(!pwk_blob_is_copied(two[0]));
        pwk_blobs_free(&blobs);
    }
    /* What a call without blobs gives replaces the blobs before. */
    OK(pwk_client_send_blobs(client, &ask, SOON, &ticket, &error));
    OK(pwk_server_recv(server, SOON, &data, &request, &error));
    OK(pwk_server_blobs(server, request.ticket, &blobs, &error));
    OK(pwk_server_reply_blobs(server, request.ticket, &bare, SOON, NULL, &error));
    OK(pwk_client_recv_blobs(client, ticket, SOON, &reply, &flags, &blobs, &error));
    CHECK(blobs.count == 0 && holds(&reply, "bare"));
    OK(pwk_client_recv_any_blobs(client, SOON, &ticket, &reply, NULL, NULL, &error));
    CHECK(ticket == 0);
    pwk_blob_free(two[0]);
    pwk_blob_free(two[1]);
    tear_down();
}

static void each_request_of_a_batch_has_its_own_blobs(void) {
    uint64_t tickets[3];
    size_t count = 9;
    set_up();
    pwk_blob *two[2] = {filled(LONG, 'a'), filled(3, 'b')};
    pwk_message asks[3] = {with("one", two, 1), with("none", NULL, 0), with("two", two, 2)};
    asks[1].flags = 8;
    OK(pwk_client_send_many_blobs(client, asks, 3, SOON, tickets, &count, &error));
    CHECK(count == 3);
    pwk_blob_free(two[0]);
    pwk_blob_free(two[1]);
    for (size_t i = 0; i < 3; i++) {
        OK(pwk_server_recv(server, SOON, &data, &request, &error));
        CHECK(request.ticket == tickets[i] && holds(&data, asks[i].data) && request.flags == asks[i].flags);
        OK(pwk_server_blobs(server, request.ticket, &blobs, &error));
        CHECK(blobs.count == asks[i].blob_count);
        CHECK(blobs.count == 0 || is_filled(blobs.blobs[0], LONG, 'a'));
        CHECK(blobs.count < 2 || is_filled(blobs.blobs[1], 3, 'b'));
        OK(pwk_server_reply(server, request.ticket, NULL, 0, &error));
        OK(pwk_client_recv(client, tickets[i], SOON, &reply, &error));
    }

    /* A failure in between leaves the requests before it sent. */
    pwk_blob *same[4] = {blobs.blobs[0], blobs.blobs[0], blobs.blobs[0], blobs.blobs[0]};
    pwk_message some[3] = {with("three", same, 3), with("four", same, 4), with("none", NULL, 0)};
    OK(pwk_client_send_many_blobs(client, some, 3, SOON, tickets, &count, &error));
    CHECK(count == 1);
    GIVES(PWK_TOO_LONG, pwk_client_send_many_blobs(client, some + 1, 2, SOON, tickets, &count, &error));
    OK(pwk_server_recv(server, SOON, &data, &request, &error));
    CHECK(holds(&data, "three"));
    GIVES(PWK_WOULD_BLOCK, pwk_server_try_recv(server, &data, &request, &error));
    tear_down();
}

static void *hand_back(void *none) {
    pwk_buffer taken = PWK_BUFFER;
    pwk_blobs found = PWK_BLOBS;
    pwk_request of;
    OK(pwk_server_recv(server, SOON, &taken, &of, &error));
    OK(pwk_server_blobs(server, of.ticket, &found, &error));
    pwk_message part = with("part", found.blobs, found.count), last = with("", found.blobs, 1);
    OK(pwk_server_part_blobs(server, of.ticket, &part, SOON, NULL, &error));
    OK(pwk_server_reply_blobs(server, of.ticket, &last, SOON, NULL, &error));
    pwk_blobs_free(&found);
    pwk_buffer_free(&taken);
    return none;
}

static void blobs_come_with_the_parts_of_a_reply(void) {
    pwk_stream *stream = NULL;
    set_up();
    pwk_blob *blob = filled(LONG, 'x');
    pwk_message ask = with("ask", &blob, 1);
    pthread_t thread = started(hand_back, NULL);
    OK(pwk_client_call_blobs(client, &ask, SOON, &reply, &flags, &blobs, &error));
    CHECK(holds(&reply, "part") && flags == 7 && blobs.count == 2 && is_filled(blobs.blobs[1], LONG, 'x'));
    pthread_join(thread, NULL);

    /* The blobs of a reply go on with the call whose reply replaces them. */
    pwk_message on = with("on", blobs.blobs, 1);
    thread = started(hand_back, NULL);
    OK(pwk_client_call_blobs(client, &on, SOON, &reply, &flags, &blobs, &error));
    CHECK(holds(&reply, "part") && blobs.count == 2 && is_filled(blobs.blobs[0], LONG, 'x'));
    pthread_join(thread, NULL);

    thread = started(hand_back, NULL);
    OK(pwk_client_stream_blobs(client, &ask, SOON, &stream, &error));
    OK(pwk_stream_next_part_blobs(stream, SOON, &reply, &flags, &blobs, &error));
    CHECK(holds(&reply, "part") && blobs.count == 1);
    OK(pwk_stream_next_part_blobs(stream, SOON, &reply, &flags, &blobs, &error));
    CHECK(reply.len == 0 && blobs.count == 1 && is_filled(blobs.blobs[0], LONG, 'x'));
    GIVES(PWK_CLOSED, pwk_stream_next_part_blobs(stream, SOON, &reply, &flags, &blobs, &error));
    CHECK(blobs.count == 0);
    pthread_join(thread, NULL);
    pwk_stream_free(stream);
    pwk_blob_free(blob);
    tear_down();
}

static void a_blob_outlives_the_death_of_the_process_that_made_it(void) {
    set_up();
    pid_t child = fork();
    if (child == 0) {
        pwk_blob *blob = filled(LONG, 'x');
        pwk_message ask = with("ask", &blob, 1);
        OK(pwk_client_send_blobs(client, &ask, SOON, &ticket, &error));
        GIVES(PWK_TIMED_OUT, pwk_client_recv(client, ticket, PWK_NEVER, &reply, &error));
        _exit(1);
    }
    OK(pwk_server_recv(server, SOON, &data, &request, &error));
    OK(pwk_server_blobs(server, request.ticket, &blobs, &error));
    int status;
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    OK(pwk_blob_check(blobs.blobs[0], &error));
    CHECK(is_filled(blobs.blobs[0], LONG, 'x'));
    /* Another process gets it from this one. */
    pwk_message on = with("on", blobs.blobs, 1);
    OK(pwk_client_send_blobs(client, &on, SOON, &ticket, &error));
    child = fork();
    if (child == 0) {
        pwk_request of;
        CHECK(is_filled(blobs.blobs[0], LONG, 'x'));
        pwk_blobs_free(&blobs);
        OK(pwk_server_recv(server, SOON, &data, &of, &error));
        OK(pwk_server_blobs(server, of.ticket, &blobs, &error));
        CHECK(is_filled(blobs.blobs[0], LONG, 'x'));
        OK(pwk_server_reply_blobs(server, of.ticket, &on, SOON, NULL, &error));
        pwk_blobs_free(&blobs);
        _exit(0);
    }
    reap(child);
    OK(pwk_server_fail(server, request.ticket, NULL, 0, NULL, &error));
    OK(pwk_client_recv_blobs(client, ticket, SOON, &reply, NULL, &blobs, &error));
    CHECK(is_filled(blobs.blobs[0], LONG, 'x'));
    tear_down();
}

static void a_draft_is_frozen_once_and_by_its_process(void) {
    pwk_blob_draft *draft = NULL;
    pwk_blob *blob = NULL, *other = NULL;
    set_up();
    OK(pwk_blob_draft_new(segment, 5, &draft, &error));
    memcpy(pwk_blob_draft_space(draft).data, "hello", 5);
    pid_t child = fork();
    if (child == 0) {
        CHECK(pwk_blob_draft_space(draft).data == NULL);
        GIVES(PWK_STALE, pwk_blob_draft_freeze(draft, &blob, &error));
        pwk_blob_draft_free(draft);
        _exit(0);
    }
    reap(child);
    OK(pwk_blob_draft_freeze(draft, &blob, &error));
    GIVES(PWK_STALE, pwk_blob_draft_freeze(draft, &other, &error));
    CHECK(strcmp(error.op, "pwk_blob_draft_freeze") == 0 && other == NULL);
    pwk_space space = pwk_blob_draft_space(draft);
    CHECK(space.data == NULL && space.len == 0);
    pwk_blob_draft_free(draft);
    pwk_bytes bytes = pwk_blob_bytes(blob);
    CHECK(bytes.len == 5 && memcmp(bytes.data, "hello", 5) == 0);

    /* A clone keeps the bytes. */
    OK(pwk_blob_clone(blob, &other, &error));
    CHECK(pwk_blob_bytes(other).data == bytes.data);
    pwk_blob_free(blob);
    CHECK(memcmp(pwk_blob_bytes(other).data, "hello", 5) == 0);
    OK(pwk_blob_check(other, &error));
    pwk_blob_free(other);

    /* One that is given up without being frozen, and an empty one. */
    OK(pwk_blob_draft_new(segment, LONG, &draft, &error));
    pwk_blob_draft_free(draft);
    blob = filled(0, 'x');
    CHECK(pwk_blob_bytes(blob).len == 0);
    pwk_blob_free(blob);
    tear_down();
}

static void limits_are_errors_that_leave_everything_as_it_was(void) {
    pwk_blob_stats stats;
    pwk_blob_draft *draft = NULL;
    char text[256];
    set_up();
    pwk_blob *blob = filled(LONG, 'x');
    pwk_blob *nine[9] = {blob, blob, blob, blob, blob, blob, blob, blob, blob};
    pwk_message many = with("many", nine, 9), three = with("three", nine, 3);
    GIVES(PWK_TOO_LONG, pwk_client_send_blobs(client, &many, SOON, &ticket, &error));
    pwk_error_text(&error, text, sizeof text);
    CHECK(strstr(text, "fewer `blobs`") != NULL);
    GIVES(PWK_TOO_LONG, pwk_client_try_send_blobs(client, &many, &ticket, &error));
    GIVES(PWK_TOO_LONG, pwk_client_call_blobs(client, &many, SOON, &reply, NULL, NULL, &error));
    pwk_stream *stream = NULL;
    GIVES(PWK_TOO_LONG, pwk_client_stream_blobs(client, &many, SOON, &stream, &error));
    OK(pwk_client_send_blobs(client, &three, SOON, &ticket, &error));
    OK(pwk_server_recv(server, SOON, &data, &request, &error));
    GIVES(PWK_TOO_LONG, pwk_server_reply_blobs(server, request.ticket, &many, SOON, NULL, &error));
    GIVES(PWK_TOO_LONG, pwk_server_part_blobs(server, request.ticket, &many, SOON, NULL, &error));
    OK(pwk_server_reply_blobs(server, request.ticket, &three, SOON, NULL, &error));
    OK(pwk_client_recv_blobs(client, ticket, SOON, &reply, NULL, &blobs, &error));
    CHECK(blobs.count == 3 && is_filled(blobs.blobs[2], LONG, 'x'));

    GIVES(PWK_TOO_LONG, pwk_blob_draft_new(segment, 3 * LONG + 1, &draft, &error));
    pwk_error_text(&error, text, sizeof text);
    CHECK(draft == NULL && strstr(text, "`blob_limit`") != NULL);
    OK(pwk_segment_blob_stats(segment, &stats, sizeof stats, &error));
    CHECK(stats.held == LONG && stats.copied == 0);
    GIVES(PWK_STALE, pwk_server_blobs(server, request.ticket, &blobs, &error));
    CHECK(blobs.count == 0);

    /* A request whose blobs do not fit any more can still be answered. */
    pwk_blob *large = filled(2 * LONG, 'y');
    pwk_message ask = with("ask", &large, 1);
    OK(pwk_client_send_blobs(client, &ask, SOON, &ticket, &error));
    pwk_blob_free(large);
    OK(pwk_server_recv(server, SOON, &data, &request, &error));
    pwk_blob *held = filled(3 * LONG, 'z');
    GIVES(PWK_TOO_LONG, pwk_server_blobs(server, request.ticket, &blobs, &error));
    OK(pwk_server_is_wanted(server, request.ticket, &answer, &error));
    CHECK(answer && blobs.count == 0);
    pwk_blob_free(held);
    OK(pwk_server_blobs(server, request.ticket, &blobs, &error));
    CHECK(blobs.count == 1 && is_filled(blobs.blobs[0], 2 * LONG, 'y'));
    OK(pwk_server_reply(server, request.ticket, NULL, 0, &error));
    OK(pwk_client_recv(client, ticket, SOON, &reply, &error));
    pwk_blob_free(blob);
    tear_down();
}

/* Cuts the bytes off the files of all blobs of a segment, as another program might. Nothing here reads
 * the bytes after that: valgrind cannot go on behind a SIGBUS. */
static void cut_short(const char *path) {
    char pattern[80];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s.*.blobs/*", path);
    CHECK(glob(pattern, 0, NULL, &found) == 0 && found.gl_pathc == 2);
    for (size_t i = 0; i < found.gl_pathc; i++) CHECK(truncate(found.gl_pathv[i], 4096) == 0);
    globfree(&found);
}

static void a_file_that_was_cut_short_is_an_error(void) {
    char path[64];
    pwk_blob_draft *draft = NULL;
    pwk_blob *none = NULL;
    snprintf(path, sizeof path, "/dev/shm/pw-c-blob-%d", (int)getpid());
    OK(pwk_segment_create(path, NULL, &segment, &error));
    attach();
    pwk_blob *blob = filled(LONG, 'x');
    OK(pwk_blob_draft_new(segment, LONG, &draft, &error));
    pwk_message ask = with("ask", &blob, 1);
    OK(pwk_client_send_blobs(client, &ask, SOON, &ticket, &error));
    cut_short(path);
    GIVES(PWK_CORRUPT, pwk_blob_check(blob, &error));
    GIVES(PWK_CORRUPT, pwk_blob_draft_freeze(draft, &none, &error));
    GIVES(PWK_STALE, pwk_blob_draft_freeze(draft, &none, &error));
    pwk_blob_draft_free(draft);
    pwk_blob_free(blob);
    OK(pwk_client_cancel(client, ticket, NULL, &error));
    OK(pwk_segment_unlink(segment, NULL, &error));
    tear_down();
}

static void a_blob_of_another_segment_is_copied_into_this_one(void) {
    set_up();
    pwk_segment *first = segment;
    pwk_blob *blob = filled(LONG, 'x');
    pwk_client_free(client);
    pwk_server_free(server);
    OK(pwk_segment_anonymous(NULL, &segment, &error));
    attach();
    pwk_message ask = with("ask", &blob, 1);
    OK(pwk_client_send_blobs(client, &ask, SOON, &ticket, &error));
    pwk_blob_free(blob);
    pwk_segment_free(first);
    OK(pwk_server_recv(server, SOON, &data, &request, &error));
    OK(pwk_server_blobs(server, request.ticket, &blobs, &error));
    CHECK(is_filled(blobs.blobs[0], LONG, 'x') && !pwk_blob_is_copied(blobs.blobs[0]));
    OK(pwk_server_reply(server, request.ticket, NULL, 0, &error));
    tear_down();
}

static void waits_without_an_event_time_out_and_empty_the_blobs(void) {
    pwk_stream *stream = NULL;
    set_up();
    pwk_blob *blob = filled(1, 'x');
    pwk_message ask = with("ask", &blob, 1);
    GIVES(PWK_TIMED_OUT, pwk_client_call_blobs(client, &ask, SHORT, &reply, &flags, &blobs, &error));
    OK(pwk_client_send_blobs(client, &ask, SOON, &ticket, &error));
    OK(pwk_server_recv(server, SOON, &data, &request, &error));
    OK(pwk_server_blobs(server, request.ticket, &blobs, &error));
    GIVES(PWK_WOULD_BLOCK, pwk_client_try_recv_blobs(client, ticket, &reply, &flags, &blobs, &error));
    CHECK(blobs.count == 0);
    GIVES(PWK_TIMED_OUT, pwk_client_recv_blobs(client, ticket, SHORT, &reply, &flags, &blobs, &error));
    uint64_t any = 1;
    GIVES(PWK_TIMED_OUT, pwk_client_recv_any_blobs(client, SHORT, &any, &reply, &flags, &blobs, &error));
    CHECK(any == 0);
    OK(pwk_server_fail(server, request.ticket, "no", 2, NULL, &error));
    GIVES(PWK_FAILED, pwk_client_recv_blobs(client, ticket, SOON, &reply, &flags, &blobs, &error));
    CHECK(holds(&reply, "no") && blobs.count == 0);
    OK(pwk_client_stream_blobs(client, &ask, SOON, &stream, &error));
    GIVES(PWK_TIMED_OUT, pwk_stream_next_part_blobs(stream, SHORT, &reply, &flags, &blobs, &error));
    pwk_stream_free(stream);
    pwk_blob_free(blob);
    tear_down();
}

static void null_is_an_error_where_it_means_nothing(void) {
    pwk_blob_draft *draft = NULL;
    pwk_blob *blob = NULL;
    pwk_message bad = with("bad", NULL, 1), hole = with("hole", &blob, 1), good = with("good", NULL, 0);
    pwk_blob_stats stats;
    set_up();
    GIVES(PWK_INVALID, pwk_blob_draft_new(NULL, 1, &draft, &error));
    NAMES(pwk_blob_draft_new);
    GIVES(PWK_INVALID, pwk_blob_draft_new(segment, 1, NULL, &error));
    GIVES(PWK_INVALID, pwk_blob_draft_freeze(NULL, &blob, &error));
    NAMES(pwk_blob_draft_freeze);
    OK(pwk_blob_draft_new(segment, 1, &draft, &error));
    GIVES(PWK_INVALID, pwk_blob_draft_freeze(draft, NULL, &error));
    CHECK(pwk_blob_draft_space(draft).data != NULL);
    pwk_blob_draft_free(draft);
    GIVES(PWK_INVALID, pwk_blob_clone(NULL, &blob, &error));
    NAMES(pwk_blob_clone);
    GIVES(PWK_INVALID, pwk_blob_check(NULL, &error));
    NAMES(pwk_blob_check);
    CHECK(pwk_blob_bytes(NULL).len == 0 && !pwk_blob_is_copied(NULL));
    CHECK(pwk_blob_draft_space(NULL).data == NULL);
    GIVES(PWK_INVALID, pwk_client_send_blobs(client, NULL, SOON, &ticket, &error));
    GIVES(PWK_INVALID, pwk_client_send_blobs(client, &bad, SOON, &ticket, &error));
    GIVES(PWK_INVALID, pwk_client_send_blobs(client, &hole, SOON, &ticket, &error));
    NAMES(pwk_client_send_blobs);
    bad.blob_count = SIZE_MAX;
    GIVES(PWK_INVALID, pwk_client_try_send_blobs(client, &bad, &ticket, &error));
    NAMES(pwk_client_try_send_blobs);
    size_t count;
    GIVES(PWK_INVALID, pwk_client_send_many_blobs(client, NULL, 1, SOON, &ticket, &count, &error));
    NAMES(pwk_client_send_many_blobs);
    GIVES(PWK_INVALID, pwk_client_send_many_blobs(client, &hole, 1, SOON, &ticket, &count, &error));
    GIVES(PWK_INVALID, pwk_client_send_many_blobs(client, &good, 1, SOON, NULL, &count, &error));
    GIVES(PWK_INVALID, pwk_client_send_many_blobs(client, &good, 1, SOON, &ticket, NULL, &error));
    OK(pwk_client_send_many_blobs(client, NULL, 0, SOON, NULL, &count, &error));
    CHECK(count == 0);
    GIVES(PWK_INVALID, pwk_client_call_blobs(client, &good, SOON, NULL, NULL, NULL, &error));
    NAMES(pwk_client_call_blobs);
    GIVES(PWK_INVALID, pwk_client_recv_blobs(NULL, 1, SOON, &reply, NULL, NULL, &error));
    NAMES(pwk_client_recv_blobs);
    GIVES(PWK_INVALID, pwk_client_try_recv_blobs(client, 1, NULL, NULL, NULL, &error));
    NAMES(pwk_client_try_recv_blobs);
    GIVES(PWK_INVALID, pwk_client_recv_any_blobs(client, SOON, NULL, &reply, NULL, NULL, &error));
    NAMES(pwk_client_recv_any_blobs);
    GIVES(PWK_INVALID, pwk_client_stream_blobs(client, &good, SOON, NULL, &error));
    NAMES(pwk_client_stream_blobs);
    GIVES(PWK_INVALID, pwk_stream_next_part_blobs(NULL, SOON, &reply, NULL, NULL, &error));
    NAMES(pwk_stream_next_part_blobs);
    GIVES(PWK_INVALID, pwk_server_blobs(server, 1, NULL, &error));
    NAMES(pwk_server_blobs);
    GIVES(PWK_INVALID, pwk_server_reply_blobs(server, 1, NULL, SOON, NULL, &error));
    NAMES(pwk_server_reply_blobs);
    GIVES(PWK_INVALID, pwk_server_part_blobs(server, 1, NULL, SOON, NULL, &error));
    NAMES(pwk_server_part_blobs);
    GIVES(PWK_INVALID, pwk_segment_blob_stats(NULL, &stats, sizeof stats, &error));
    NAMES(pwk_segment_blob_stats);
    pwk_blob_free(NULL);
    pwk_blobs_free(NULL);
    pwk_blob_draft_free(NULL);
    tear_down();
}

static const struct test tests[] = {
    TEST(blobs_travel_both_ways_in_every_form_of_a_call),
    TEST(each_request_of_a_batch_has_its_own_blobs),
    TEST(blobs_come_with_the_parts_of_a_reply),
    TEST(a_blob_outlives_the_death_of_the_process_that_made_it),
    TEST(a_draft_is_frozen_once_and_by_its_process),
    TEST(limits_are_errors_that_leave_everything_as_it_was),
    TEST(a_file_that_was_cut_short_is_an_error),
    TEST(a_blob_of_another_segment_is_copied_into_this_one),
    TEST(waits_without_an_event_time_out_and_empty_the_blobs),
    TEST(null_is_an_error_where_it_means_nothing),
};
MAIN(tests)
