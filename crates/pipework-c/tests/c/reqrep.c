/* Module reqrep. */
#include "check.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>

static pwk_segment *segment;
static pwk_client *client;
static pwk_server *server;
static pwk_buffer data = PWK_BUFFER, reply = PWK_BUFFER;
static pwk_request request;
static uint16_t redeliveries;
static uint64_t ticket;
static uint32_t flags;
static bool answer;
static size_t count;

/* A segment of small slots with a client and a server. */
static void set_up(void) {
    pwk_segment_options options;
    pwk_segment_options_init(&options, sizeof options);
    options.slots = 8;
    options.request_bytes = options.reply_bytes = 64;
    OK(pwk_segment_anonymous(&options, &segment, &error));
    OK(pwk_client_new(segment, NULL, &client, &error));
    OK(pwk_server_new(segment, NULL, &server, &error));
}

/* Nothing is left behind in the segment. */
static void is_clean(void) {
    pwk_audit audit;
    OK(pwk_segment_audit(segment, &audit, sizeof audit, &error));
    CHECK(audit.free == 8 && audit.damaged == 0);
}

static void tear_down(void) {
    pwk_client_free(client);
    pwk_server_free(server);
    is_clean();
    pwk_segment_free(segment);
    client = NULL;
    server = NULL;
    segment = NULL;
    pwk_buffer_free(&data);
    pwk_buffer_free(&reply);
}

/* Answers with the same bytes and flags, up to an empty request. */
static void *echo(void *none) {
    pwk_buffer taken = PWK_BUFFER;
    pwk_request of;
    do {
        OK(pwk_server_recv(server, SOON, &taken, &of, &error));
        OK(pwk_server_reply_message(server, of.ticket, taken.data, taken.len, of.flags, NULL, &error));
    } while (taken.len > 0);
    pwk_buffer_free(&taken);
    return none;
}

static void a_call_is_answered(void) {
    char into[8];
    set_up();
    pthread_t thread = started(echo, NULL);
    for (int i = 0; i < 1000; i++) {
        OK(pwk_client_call_message(client, "hello", 5, 7, SOON, &reply, &flags, &error));
        CHECK(holds(&reply, "hello") && flags == 7);
    }
    OK(pwk_client_call_into(client, "hello", 5, 9, SOON, into, sizeof into, &count, &flags, &error));
    CHECK(count == 5 && flags == 9 && memcmp(into, "hello", 5) == 0);
    GIVES(PWK_TOO_LONG, pwk_client_call_into(client, "hello", 5, 0, SOON, into, 4, &count, NULL,
          &error));
    GIVES(PWK_INVALID, pwk_client_call(client, reply.data, 5, SOON, &reply, &error));
    GIVES(PWK_INVALID, pwk_client_call_into(client, into + 2, 5, 0, SOON, into, 4, &count, NULL,
          &error));
    OK(pwk_client_call(client, NULL, 0, SOON, &reply, NULL));
    CHECK(reply.len == 0);
    pthread_join(thread, NULL);
    GIVES(PWK_TIMED_OUT, pwk_client_call(client, "x", 1, SHORT, &reply, &error));
    GIVES(PWK_TIMED_OUT, pwk_client_call_into(client, "x", 1, 0, SHORT, into, 8, NULL, NULL, &error));
    GIVES(PWK_TIMED_OUT, pwk_server_recv(server, SHORT, &data, &request, &error));
    tear_down();
}

static void a_call_of_any_size_is_answered(void) {
    enum { LONG = 1 << 20 };
    char *bytes = malloc(LONG), *into = malloc(LONG);
    set_up();
    for (int i = 0; i < LONG; i++) bytes[i] = (char)(i * 7 + i / 256);
    pthread_t thread = started(echo, NULL);
    OK(pwk_client_call_message(client, bytes, LONG, 7, SOON, &reply, &flags, &error));
    CHECK(reply.len == LONG && flags == 7 && memcmp(reply.data, bytes, LONG) == 0);
    OK(pwk_client_call_into(client, bytes, LONG, 7, SOON, into, LONG, &count, NULL, &error));
    CHECK(count == LONG && memcmp(into, bytes, LONG) == 0);
    OK(pwk_client_send_message(client, bytes, 1000, 7, SOON, &ticket, &error));
    OK(pwk_client_recv_message(client, ticket, SOON, &reply, &flags, &error));
    CHECK(reply.len == 1000 && flags == 7 && memcmp(reply.data, bytes, 1000) == 0);
    OK(pwk_client_call(client, NULL, 0, SOON, &reply, &error));
    pthread_join(thread, NULL);
    free(bytes);
    free(into);
    tear_down();
}

/* Takes the waiting request and answers it with these bytes. */
static void answer_with(const char *bytes) {
    OK(pwk_server_try_recv(server, &data, &request, &error));
    OK(pwk_server_reply_message(server, request.ticket, bytes, strlen(bytes), 5, &answer, &error));
}

static void a_ticket_stands_for_a_call(void) {
    char into[16];
    uint64_t tickets[8];
    set_up();
    GIVES(PWK_WOULD_BLOCK, pwk_server_try_recv(server, &data, &request, &error));
    CHECK(error.kind == 0);
    for (int i = 0; i < 8; i++) {
        OK(pwk_client_try_send_message(client, "ask", 3, i, &tickets[i], &error));
    }
    GIVES(PWK_WOULD_BLOCK, pwk_client_try_send(client, "ask", 3, &ticket, &error));
    GIVES(PWK_TIMED_OUT, pwk_client_send(client, "ask", 3, SHORT, &ticket, &error));
    CHECK(pwk_client_pending(client) == 8 && pwk_segment_len(segment) == 8);
    GIVES(PWK_WOULD_BLOCK, pwk_client_try_recv_message(client, tickets[0], &reply, &flags, &error));
    GIVES(PWK_TIMED_OUT, pwk_client_recv_message(client, tickets[0], SHORT, &reply, &flags, &error));
    GIVES(PWK_TIMED_OUT, pwk_client_recv_into(client, tickets[0], SHORT, into, 16, &count, NULL,
          &error));

    OK(pwk_server_try_recv(server, &data, &request, &error));
    CHECK(holds(&data, "ask") && request.ticket == tickets[0] && request.flags == 0);
    CHECK(request.offset == 0 && request.len == 3 && request.redeliveries == 0);
    OK(pwk_server_is_wanted(server, request.ticket, &answer, &error));
    CHECK(answer);
    OK(pwk_server_redeliveries(server, request.ticket, &redeliveries, &error));
    CHECK(redeliveries == 0 && pwk_ticket_slot(request.ticket) < 8 && pwk_ticket_slot(UINT64_MAX) >= 8);
    OK(pwk_server_reply_message(server, request.ticket, "answer", 6, 5, &answer, &error));
    CHECK(answer && pwk_client_reply_len(client, tickets[0]) == 6);
    GIVES(PWK_STALE, pwk_server_reply_message(server, request.ticket, "again", 5, 0, &answer, &error));
    GIVES(PWK_STALE, pwk_server_is_wanted(server, request.ticket, &answer, &error));
    GIVES(PWK_STALE, pwk_server_redeliveries(server, request.ticket, &redeliveries, &error));
    OK(pwk_client_try_recv_message(client, tickets[0], &reply, &flags, &error));
    CHECK(holds(&reply, "answer") && flags == 5);
    GIVES(PWK_STALE, pwk_client_try_recv(client, tickets[0], &reply, &error));
    GIVES(PWK_STALE, pwk_client_recv(client, tickets[0], SOON, &reply, &error));
    CHECK(pwk_client_reply_len(client, tickets[0]) == 0);

    answer_with("answer");
    GIVES(PWK_TOO_LONG, pwk_client_recv_into(client, tickets[1], SOON, into, 5, &count, NULL, &error));
    OK(pwk_client_recv_into(client, tickets[1], SOON, into, 6, &count, &flags, &error));
    CHECK(count == 6 && flags == 5 && memcmp(into, "answer", 6) == 0);

    answer_with("answer");
    OK(pwk_client_cancel(client, tickets[2], &answer, &error));
    CHECK(!answer);
    OK(pwk_client_recv(client, tickets[2], SOON, &reply, &error));
    OK(pwk_client_cancel(client, tickets[3], &answer, &error));
    CHECK(answer);
    GIVES(PWK_STALE, pwk_client_cancel(client, tickets[3], &answer, &error));

    OK(pwk_server_try_recv(server, &data, &request, &error));
    CHECK(request.ticket == tickets[4]);
    OK(pwk_client_cancel(client, tickets[4], NULL, &error));
    OK(pwk_server_is_wanted(server, request.ticket, &answer, &error));
    CHECK(!answer);
    OK(pwk_server_reply_message(server, request.ticket, "x", 1, 0, &answer, &error));
    CHECK(!answer);

    OK(pwk_client_forget(client, tickets[5], &error));
    GIVES(PWK_STALE, pwk_client_forget(client, tickets[5], &error));
    OK(pwk_server_try_recv(server, &data, &request, &error));
    OK(pwk_server_is_wanted(server, request.ticket, &answer, &error));
    CHECK(request.flags == 5 && answer);
    OK(pwk_server_reply_message(server, request.ticket, "x", 1, 0, &answer, &error));
    CHECK(!answer);

    OK(pwk_server_clear(server, &count, &error));
    CHECK(count == 2);
    GIVES(PWK_FAILED, pwk_client_recv(client, tickets[6], SOON, &reply, &error));
    GIVES(PWK_STALE, pwk_client_recv(client, 12345, SOON, &reply, &error));
    GIVES(PWK_STALE, pwk_server_reply_message(server, UINT64_MAX, "x", 1, 0, &answer, &error));
    tear_down();
}

static void many_requests_share_one_call(void) {
    const pwk_bytes asks[3] = {{"one", 3}, {NULL, 0}, {"three", 5}};
    const pwk_bytes bad[2] = {{"one", 3}, {NULL, 1}};
    uint64_t tickets[3];
    pwk_request requests[4];
    set_up();
    OK(pwk_client_send_many(client, asks, 3, 9, SOON, tickets, &count, &error));
    CHECK(count == 3);
    OK(pwk_server_recv_many(server, 4, SOON, 1000000, &data, requests, &count, &error));
    CHECK(count == 3 && holds(&data, "onethree"));
    for (int i = 0; i < 3; i++) {
        CHECK(requests[i].ticket == tickets[i] && requests[i].flags == 9
              && requests[i].len == asks[i].len);
        const char *bytes_of = (char *)data.data + requests[i].offset;
        OK(pwk_server_reply_message(server, requests[i].ticket, bytes_of, requests[i].len, i, NULL, &error));
    }
    for (int i = 0; i < 3; i++) {
        OK(pwk_client_recv_any_message(client, SOON, &ticket, &reply, &flags, &error));
        CHECK(ticket == tickets[flags] && reply.len == asks[flags].len);
    }
    OK(pwk_client_recv_any(client, SOON, &ticket, &reply, &error));
    CHECK(ticket == 0);

    OK(pwk_client_send_many(client, asks, 2, 0, SOON, tickets, &count, &error));
    GIVES(PWK_TIMED_OUT, pwk_client_recv_any(client, SHORT, &ticket, &reply, &error));
    CHECK(ticket == 0);
    OK(pwk_server_drain(server, 4, &data, requests, &count, &error));
    CHECK(count == 2);
    OK(pwk_server_fail(server, requests[0].ticket, "no", 2, &answer, &error));
    OK(pwk_server_reply_message(server, requests[1].ticket, "yes", 3, 0, &answer, &error));
    for (int i = 0; i < 2; i++) {
        pwk_status status = pwk_client_recv_any(client, SOON, &ticket, &reply, &error);
        CHECK(status == (ticket == tickets[0] ? PWK_FAILED : PWK_OK));
        CHECK(holds(&reply, ticket == tickets[0] ? "no" : "yes"));
    }
    OK(pwk_server_drain(server, 4, &data, requests, &count, &error));
    CHECK(count == 0 && data.len == 0);
    GIVES(PWK_TIMED_OUT, pwk_server_recv_many(server, 4, SHORT, 0, &data, requests, &count, &error));
    OK(pwk_server_recv_many(server, 0, SHORT, 0, &data, NULL, &count, &error));
    CHECK(count == 0);
    OK(pwk_client_send_many(client, NULL, 0, 0, SOON, NULL, &count, &error));
    GIVES(PWK_INVALID, pwk_client_send_many(client, bad, 2, 0, SOON, tickets, &count, &error));
    CHECK(pwk_client_pending(client) == 0);
    GIVES(PWK_INVALID, pwk_server_drain(server, SIZE_MAX, &data, requests, &count, &error));
    tear_down();
}

static void *refuse(void *none) {
    pwk_buffer taken = PWK_BUFFER;
    pwk_request of;
    OK(pwk_server_recv(server, SOON, &taken, &of, &error));
    OK(pwk_server_fail(server, of.ticket, "why not", 7, NULL, &error));
    pwk_buffer_free(&taken);
    return none;
}

static void who_gives_up_may_say_why(void) {
    set_up();
    pthread_t thread = started(refuse, NULL);
    GIVES(PWK_FAILED, pwk_client_call_message(client, "ask", 3, 0, SOON, &reply, &flags, &error));
    CHECK(holds(&reply, "why not"));
    pthread_join(thread, NULL);

    OK(pwk_client_send(client, "ask", 3, SOON, &ticket, &error));
    OK(pwk_server_recv(server, SOON, &data, &request, &error));
    OK(pwk_server_fail(server, request.ticket, NULL, 0, &answer, &error));
    CHECK(answer);
    GIVES(PWK_STALE, pwk_server_fail(server, request.ticket, "no", 2, &answer, &error));
    GIVES(PWK_FAILED, pwk_client_try_recv_message(client, ticket, &reply, &flags, &error));
    CHECK(reply.len == 0);

    /* Of a reason, as much arrives as a slot has. */
    char longer[100];
    memset(longer, 'x', sizeof longer);
    OK(pwk_client_send(client, "ask", 3, SOON, &ticket, &error));
    OK(pwk_server_recv(server, SOON, &data, &request, &error));
    OK(pwk_server_fail(server, request.ticket, longer, sizeof longer, &answer, &error));
    GIVES(PWK_FAILED, pwk_client_recv_message(client, ticket, SOON, &reply, &flags, &error));
    CHECK(reply.len == 64);
    tear_down();
}

static void a_reply_that_is_too_long_leaves_the_request_open(void) {
    pwk_server_options options;
    char longer[200] = {0};
    set_up();
    pwk_server_options_init(&options, sizeof options);
    CHECK(options.max_message == 256u << 20 && options.part_timeout_ns == 10000000000);
    options.max_message = 100;
    pwk_server_free(server);
    OK(pwk_server_new(segment, &options, &server, &error));
    OK(pwk_client_send(client, "ask", 3, SOON, &ticket, &error));
    OK(pwk_server_recv(server, SOON, &data, &request, &error));
    GIVES(PWK_TOO_LONG, pwk_server_reply(server, request.ticket, longer, 101, &error));
    GIVES(PWK_TOO_LONG,
          pwk_server_reply_until(server, request.ticket, longer, 101, 0, SOON, NULL, &error));
    GIVES(PWK_TOO_LONG, pwk_server_part(server, request.ticket, longer, 101, 0, SOON, NULL, &error));
    OK(pwk_server_reply(server, request.ticket, "short", 5, &error));
    OK(pwk_client_recv(client, ticket, SOON, &reply, &error));
    CHECK(holds(&reply, "short"));
    /* A client that does not take a part does not hold the server for ever. */
    pwk_stream *stream = NULL;
    options.part_timeout_ns = 30000000;
    options.max_message = 1000;
    pwk_server_free(server);
    OK(pwk_server_new(segment, &options, &server, &error));
    OK(pwk_client_stream(client, "ask", 3, 0, SOON, &stream, &error));
    OK(pwk_server_recv(server, SOON, &data, &request, &error));
    OK(pwk_server_part(server, request.ticket, longer, 200, 0, SOON, NULL, &error));
    GIVES(PWK_TIMED_OUT, pwk_server_reply(server, request.ticket, longer, 200, &error));
    GIVES(PWK_STALE, pwk_server_reply(server, request.ticket, "short", 5, &error));
    GIVES(PWK_FAILED, pwk_stream_next_part(stream, SOON, &reply, NULL, &error));
    pwk_stream_free(stream);
    options.size = 1;
    GIVES(PWK_INVALID, pwk_server_new(segment, &options, &server, &error));
    tear_down();
}

/* A hundred parts, the last one empty, for each request; until the client has gone. */
static void *stream_parts(void *none) {
    pwk_buffer taken = PWK_BUFFER;
    pwk_request of;
    char part[32];
    OK(pwk_server_recv(server, SOON, &taken, &of, &error));
    bool wanted = true;
    for (int i = 0; i < 100 && wanted; i++) {
        int len = snprintf(part, sizeof part, "part %d", i);
        OK(pwk_server_part(server, of.ticket, part, (size_t)len, (uint32_t)i, SOON, &wanted, &error));
    }
    OK(pwk_server_reply(server, of.ticket, NULL, 0, &error));
    pwk_buffer_free(&taken);
    return wanted ? none : &answer;
}

static void a_reply_comes_part_by_part(void) {
    pwk_stream *stream = NULL;
    char text[32];
    void *gone;
    set_up();
    pthread_t thread = started(stream_parts, NULL);
    OK(pwk_client_stream(client, "ask", 3, 0, SOON, &stream, &error));
    for (uint32_t i = 0; i < 100; i++) {
        OK(pwk_stream_next_part(stream, SOON, &reply, &flags, &error));
        snprintf(text, sizeof text, "part %d", (int)i);
        CHECK(holds(&reply, text) && flags == i);
    }
    GIVES(PWK_CLOSED, pwk_stream_next_part(stream, SOON, &reply, &flags, &error));
    GIVES(PWK_CLOSED, pwk_stream_next_part(stream, SOON, &reply, &flags, &error));
    pwk_stream_free(stream);
    pthread_join(thread, &gone);
    CHECK(gone == NULL);

    /* As one reply for a client that does not ask for parts. */
    thread = started(stream_parts, NULL);
    OK(pwk_client_call(client, "ask", 3, SOON, &reply, &error));
    CHECK(reply.len == 10 * 6 + 90 * 7);
    pthread_join(thread, NULL);

    /* Freed before its end, it cancels. */
    thread = started(stream_parts, NULL);
    OK(pwk_client_stream(client, "ask", 3, 0, SOON, &stream, &error));
    OK(pwk_stream_next_part(stream, SOON, &reply, NULL, &error));
    pwk_stream_free(stream);
    pthread_join(thread, &gone);
    CHECK(gone != NULL);

    thread = started(refuse, NULL);
    OK(pwk_client_stream(client, "ask", 3, 0, SOON, &stream, &error));
    GIVES(PWK_FAILED, pwk_stream_next_part(stream, SOON, &reply, NULL, &error));
    CHECK(holds(&reply, "why not"));
    GIVES(PWK_CLOSED, pwk_stream_next_part(stream, SOON, &reply, NULL, &error));
    pwk_stream_free(stream);
    pthread_join(thread, NULL);

    OK(pwk_client_stream(client, "ask", 3, 0, SOON, &stream, &error));
    GIVES(PWK_TIMED_OUT, pwk_stream_next_part(stream, SHORT, &reply, NULL, &error));
    OK(pwk_server_recv(server, SOON, &data, &request, &error));
    OK(pwk_server_part(server, request.ticket, "one", 3, 0, SOON, &answer, &error));
    GIVES(PWK_TIMED_OUT, pwk_server_part(server, request.ticket, "two", 3, 0, SHORT, &answer, &error));
    OK(pwk_stream_next_part(stream, SOON, &reply, NULL, &error));
    OK(pwk_server_part(server, request.ticket, "two", 3, 0, SOON, &answer, &error));
    CHECK(answer);
    OK(pwk_stream_next_part(stream, SOON, &reply, NULL, &error));
    CHECK(holds(&reply, "two"));
    OK(pwk_server_part(server, request.ticket, "two", 3, 0, SOON, &answer, &error));
    /* No client has taken it, and the request stays open. */
    for (int i = 0; i < 2; i++) {
        GIVES(PWK_TIMED_OUT,
              pwk_server_reply_until(server, request.ticket, "three", 5, 0, SHORT, &answer, &error));
    }
    OK(pwk_stream_next_part(stream, SOON, &reply, NULL, &error));
    OK(pwk_server_reply_until(server, request.ticket, "three", 5, 0, SOON, &answer, &error));
    CHECK(answer);
    GIVES(PWK_STALE, pwk_server_reply_until(server, request.ticket, "x", 1, 0, SOON, NULL, &error));
    OK(pwk_stream_next_part(stream, SOON, &reply, NULL, &error));
    CHECK(holds(&reply, "three"));
    pwk_stream_free(stream);
    GIVES(PWK_STALE, pwk_server_part(server, request.ticket, "four", 4, 0, SOON, &answer, &error));
    GIVES(PWK_STALE, pwk_server_flush(server, request.ticket, SOON, &answer, &error));

    /* The reason arrives behind a part only when that was taken. */
    OK(pwk_client_stream(client, "ask", 3, 0, SOON, &stream, &error));
    OK(pwk_server_recv(server, SOON, &data, &request, &error));
    OK(pwk_server_part(server, request.ticket, "one", 3, 0, SOON, &answer, &error));
    OK(pwk_stream_next_part(stream, SOON, &reply, NULL, &error));
    OK(pwk_server_part(server, request.ticket, "two", 3, 0, SOON, &answer, &error));
    GIVES(PWK_TIMED_OUT, pwk_server_flush(server, request.ticket, SHORT, &answer, &error));
    OK(pwk_stream_next_part(stream, SOON, &reply, NULL, &error));
    answer = false;
    OK(pwk_server_flush(server, request.ticket, SOON, &answer, &error));
    CHECK(answer);
    OK(pwk_server_fail(server, request.ticket, "no more", 7, &answer, &error));
    GIVES(PWK_FAILED, pwk_stream_next_part(stream, SOON, &reply, NULL, &error));
    CHECK(holds(&reply, "no more"));
    pwk_stream_free(stream);
    tear_down();
}

static void long_messages_are_sent_without_a_wait_and_come_whole(void) {
    char bytes[300];
    set_up();
    memset(bytes, 'a', sizeof bytes);
    bytes[299] = 'z';
    OK(pwk_client_try_send_message(client, bytes, sizeof bytes, 3, &ticket, &error));
    OK(pwk_server_try_recv(server, &data, &request, &error));
    CHECK(data.len == 300 && request.len == 300 && request.flags == 3);
    CHECK(memcmp(data.data, bytes, 300) == 0);
    OK(pwk_server_reply(server, request.ticket, bytes, 299, &error));
    CHECK(pwk_client_reply_len(client, ticket) == 299);
    OK(pwk_client_try_recv(client, ticket, &reply, &error));
    CHECK(reply.len == 299 && memcmp(reply.data, bytes, 299) == 0);
    tear_down();
}

static void what_was_forgotten_outlives_its_client(void) {
    set_up();
    OK(pwk_client_send(client, "gone", 4, SOON, &ticket, &error));
    pwk_client_free(client);
    OK(pwk_client_new(segment, NULL, &client, &error));
    GIVES(PWK_WOULD_BLOCK, pwk_server_try_recv(server, &data, &request, &error));
    for (int i = 0; i < 3; i++) OK(pwk_client_send(client, "stays", 5, SOON, &ticket, &error));
    CHECK(pwk_client_forget_all(client) == 3 && pwk_client_forget_all(client) == 0);
    GIVES(PWK_STALE, pwk_client_recv(client, ticket, SOON, &reply, &error));
    pwk_client_free(client);
    client = NULL;
    for (int i = 0; i < 3; i++) answer_with("no client waits");
    CHECK(holds(&data, "stays"));
    tear_down();
}

static void a_child_is_a_member_of_its_own(void) {
    set_up();
    OK(pwk_client_send(client, "first", 5, SOON, &ticket, &error));
    OK(pwk_server_recv(server, SOON, &data, &request, &error));
    pid_t child = fork();
    if (child == 0) {
        /* The parent's calls are not the child's, and its requests only when adopted. */
        CHECK(pwk_client_forget_all(client) == 0);
        GIVES(PWK_STALE, pwk_client_recv(client, ticket, SOON, &reply, &error));
        GIVES(PWK_STALE, pwk_server_reply(server, request.ticket, "no", 2, &error));
        OK(pwk_server_adopt(server, request.ticket, &error));
        GIVES(PWK_STALE, pwk_server_adopt(server, request.ticket, &error));
        OK(pwk_server_reply(server, request.ticket, "child's", 7, &error));
        OK(pwk_client_call(client, "second", 6, SOON, &reply, &error));
        CHECK(holds(&reply, "second"));
        pwk_client_free(client);
        pwk_server_free(server);
        pwk_segment_free(segment);
        _exit(0);
    }
    OK(pwk_client_recv(client, ticket, SOON, &reply, &error));
    CHECK(holds(&reply, "child's"));
    GIVES(PWK_STALE, pwk_server_reply(server, request.ticket, "parent's", 8, &error));
    OK(pwk_server_recv(server, SOON, &data, &request, &error));
    OK(pwk_server_reply(server, request.ticket, data.data, data.len, &error));
    reap(child);
    GIVES(PWK_STALE, pwk_server_adopt(server, 7, &error));
    tear_down();
}

static void the_death_of_a_server_is_reported(void) {
    set_up();
    pwk_server_free(server);
    pid_t child = fork();
    if (child == 0) {
        OK(pwk_server_new(segment, NULL, &server, &error));
        OK(pwk_server_recv(server, SOON, &data, &request, &error));
        kill(getpid(), SIGKILL);
    }
    GIVES(PWK_PEER_DIED, pwk_client_call(client, "ask", 3, SOON, &reply, &error));
    waitpid(child, NULL, 0);
    OK(pwk_segment_recover(segment, &count, &error));
    pwk_stats stats;
    OK(pwk_segment_stats(segment, &stats, sizeof stats, &error));
    CHECK(stats.requests == 1 && stats.dead_members == 1);
    OK(pwk_server_new(segment, NULL, &server, &error));
    tear_down();
}

static void a_signal_ends_every_wait_and_nothing_is_lost(void) {
    struct signals signals;
    uint64_t tickets[8];
    char into[8];
    pwk_stream *stream = NULL;
    pwk_request requests[8];
    set_up();
    begin(&signals);
    GIVES(PWK_INTERRUPTED, pwk_server_recv(server, SOON, &data, &request, &error));
    GIVES(PWK_INTERRUPTED, pwk_server_recv_many(server, 8, SOON, 0, &data, requests, &count, &error));
    GIVES(PWK_INTERRUPTED, pwk_client_call(client, "ask", 3, SOON, &reply, &error));
    GIVES(PWK_INTERRUPTED, pwk_client_call_into(client, "ask", 3, 0, SOON, into, 8, NULL, NULL, &error));
    CHECK(pwk_client_pending(client) == 0);
    OK(pwk_client_stream(client, "ask", 3, 0, SOON, &stream, &error));
    GIVES(PWK_INTERRUPTED, pwk_stream_next_part(stream, SOON, &reply, NULL, &error));
    for (int i = 0; i < 7; i++) OK(pwk_client_send(client, "ask", 3, SOON, &tickets[i], &error));
    GIVES(PWK_INTERRUPTED, pwk_client_send(client, "ask", 3, SOON, &ticket, &error));
    GIVES(PWK_INTERRUPTED, pwk_client_stream(client, "ask", 3, 0, SOON, &stream, &error));
    const pwk_bytes one = {"ask", 3};
    GIVES(PWK_INTERRUPTED, pwk_client_send_many(client, &one, 1, 0, SOON, &ticket, &count, &error));
    GIVES(PWK_INTERRUPTED, pwk_client_recv(client, tickets[0], SOON, &reply, &error));
    GIVES(PWK_INTERRUPTED, pwk_client_recv_into(client, tickets[0], SOON, into, 8, NULL, NULL, &error));
    GIVES(PWK_INTERRUPTED, pwk_client_recv_any(client, SOON, &ticket, &reply, &error));
    OK(pwk_server_recv(server, SOON, &data, &request, &error));
    OK(pwk_server_part(server, request.ticket, "one", 3, 0, SOON, NULL, &error));
    GIVES(PWK_INTERRUPTED, pwk_server_part(server, request.ticket, "two", 3, 0, SOON, NULL, &error));
    end(&signals);
    OK(pwk_server_recv_many(server, 8, SOON, 0, &data, requests, &count, &error));
    CHECK(count == 7);
    for (int i = 0; i < 7; i++) {
        OK(pwk_server_reply(server, requests[i].ticket, "answer", 6, &error));
        OK(pwk_client_recv(client, tickets[i], SOON, &reply, &error));
        CHECK(holds(&reply, "answer"));
    }
    OK(pwk_stream_next_part(stream, SOON, &reply, NULL, &error));
    CHECK(holds(&reply, "one"));
    pwk_stream_free(stream);
    OK(pwk_server_fail(server, request.ticket, NULL, 0, NULL, &error));
    tear_down();
}

/* A thousand calls with numbers of its own, through handles that all threads share. */
static void *call_often(void *of) {
    pwk_buffer got = PWK_BUFFER;
    char text[32];
    for (int i = 0; i < 1000; i++) {
        int len = snprintf(text, sizeof text, "%d %d", *(int *)of, i);
        OK(pwk_client_call(client, text, (size_t)len, SOON, &got, &error));
        CHECK(holds(&got, text));
    }
    pwk_buffer_free(&got);
    return NULL;
}

static void threads_share_a_client_and_a_server(void) {
    pthread_t callers[4], servers[2];
    int numbers[4] = {1, 2, 3, 4};
    set_up();
    for (int i = 0; i < 2; i++) servers[i] = started(echo, NULL);
    for (int i = 0; i < 4; i++) callers[i] = started(call_often, &numbers[i]);
    for (int i = 0; i < 4; i++) pthread_join(callers[i], NULL);
    for (int i = 0; i < 2; i++) OK(pwk_client_call(client, NULL, 0, SOON, &reply, &error));
    for (int i = 0; i < 2; i++) pthread_join(servers[i], NULL);
    tear_down();
}

static void *wait_for_stop(void *none) {
    pwk_buffer taken = PWK_BUFFER;
    pwk_request of;
    GIVES(PWK_CLOSED, pwk_server_recv(server, SOON, &taken, &of, &error));
    pwk_buffer_free(&taken);
    return none;
}

static void a_server_is_stopped_from_another_thread(void) {
    set_up();
    OK(pwk_client_send(client, "ask", 3, SOON, &ticket, &error));
    OK(pwk_server_recv(server, SOON, &data, &request, &error));
    pthread_t thread = started(wait_for_stop, NULL);
    usleep(20000);
    pwk_server_stop(server);
    pwk_server_stop(NULL);
    pthread_join(thread, NULL);
    GIVES(PWK_CLOSED, pwk_server_try_recv(server, &data, &request, &error));
    GIVES(PWK_CLOSED, pwk_server_clear(server, &count, &error));
    OK(pwk_server_reply_message(server, ticket, "late", 4, 0, &answer, &error));
    OK(pwk_client_recv(client, ticket, SOON, &reply, &error));
    CHECK(answer && holds(&reply, "late"));
    tear_down();
}

static bool is_readable(int fd, int timeout_ms) {
    struct pollfd polled = {fd, POLLIN, 0};
    return poll(&polled, 1, timeout_ms) == 1;
}

static void event_loops_have_doorbells(void) {
    int requests, replies, space;
    set_up();
    OK(pwk_server_doorbell(server, &requests, &error));
    OK(pwk_client_doorbell(client, &replies, &error));
    OK(pwk_client_send_doorbell(client, &space, &error));
    GIVES(PWK_WOULD_BLOCK, pwk_server_try_recv(server, &data, &request, &error));
    CHECK(!is_readable(requests, 0) && !is_readable(replies, 0));
    OK(pwk_client_try_send(client, "ask", 3, &ticket, &error));
    CHECK(is_readable(requests, 5000) && is_readable(space, 5000));
    answer_with("answer");
    CHECK(is_readable(replies, 5000));
    OK(pwk_client_try_recv(client, ticket, &reply, &error));
    CHECK(fcntl(requests, F_GETFD) == FD_CLOEXEC);
    close(requests);
    close(replies);
    close(space);
    GIVES(PWK_INVALID, pwk_server_doorbell(server, NULL, &error));
    GIVES(PWK_INVALID, pwk_client_doorbell(NULL, &replies, &error));
    GIVES(PWK_INVALID, pwk_client_send_doorbell(client, NULL, &error));
    tear_down();
}

static void *answer_at_length(void *none) {
    const char longer[200] = {0};
    pwk_buffer taken = PWK_BUFFER;
    pwk_request of;
    bool wanted = true;
    OK(pwk_server_recv(server, SOON, &taken, &of, &error));
    OK(pwk_server_reply_message(server, of.ticket, longer, sizeof longer, 0, &wanted, &error));
    CHECK(wanted);
    pwk_buffer_free(&taken);
    return none;
}

static void clients_have_options(void) {
    pwk_client_options options;
    uint64_t sent;
    const char longer[101] = {0};
    set_up();
    pwk_client_free(client);
    pwk_server_free(server);
    pwk_client_options_init(&options, sizeof options);
    CHECK(options.max_message == 256u << 20 && !options.needs_server && options.redeliveries == 0);
    options.needs_server = true;
    options.max_message = 100;
    options.max_in_flight = 1;
    OK(pwk_client_new(segment, &options, &client, &error));
    GIVES(PWK_NO_SERVER, pwk_client_call(client, "x", 1, SOON, &reply, &error));
    GIVES(PWK_TOO_LONG, pwk_client_call(client, longer, 101, SOON, &reply, &error));
    OK(pwk_server_new(segment, NULL, &server, &error));
    OK(pwk_client_try_send(client, "x", 1, &sent, &error));
    GIVES(PWK_WOULD_BLOCK, pwk_client_try_send(client, "x", 1, &ticket, &error));
    /* The call has ended with that, and not the wait. */
    pthread_t thread = started(answer_at_length, NULL);
    GIVES(PWK_TOO_LONG, pwk_client_recv_any(client, SOON, &ticket, &reply, &error));
    CHECK(ticket == sent && pwk_client_pending(client) == 0);
    pthread_join(thread, NULL);
    tear_down();
}

static void options_of_other_sizes_are_understood(void) {
    pwk_segment_options options;
    /* A program of an earlier version knows the slots and no more. */
    pwk_segment_options_init(&options, offsetof(pwk_segment_options, queue));
    CHECK(options.size == offsetof(pwk_segment_options, queue) && options.slots == PWK_UNSET);
    options.slots = 4;
    options.queue = 0;
    OK(pwk_segment_anonymous(&options, &segment, &error));
    pwk_segment_free(segment);
    /* One of a later version sets nothing that this library does not know. */
    struct {
        pwk_segment_options known;
        uint64_t unknown;
    } later;
    pwk_segment_options_init(&later.known, sizeof later);
    CHECK(later.known.size == sizeof later && later.unknown == 0);
    OK(pwk_segment_anonymous(&later.known, &segment, &error));
    pwk_segment_free(segment);
    later.unknown = 1;
    GIVES(PWK_INVALID, pwk_segment_anonymous(&later.known, &segment, &error));
    NAMES(pwk_segment_anonymous);
    later.known.size = 0;
    GIVES(PWK_INVALID, pwk_segment_anonymous(&later.known, &segment, &error));
    pwk_segment_options_init(NULL, sizeof options);
    pwk_client_options_init(NULL, 0);
    pwk_server_options_init(NULL, 0);
    pwk_segment_options_init(&options, sizeof options);
    options.slots = 0;
    GIVES(PWK_INVALID, pwk_segment_anonymous(&options, &segment, &error));
    memset(&options, 0xFF, sizeof options);
    options.size = sizeof options;
    OK(pwk_segment_anonymous(&options, &segment, &error));
    pwk_segment_free(segment);
    segment = NULL;
}

static void a_segment_has_a_path(void) {
    char path[64];
    pwk_geometry sizes;
    pwk_segment *other = NULL;
    snprintf(path, sizeof path, "/dev/shm/pw-c-%d", (int)getpid());
    OK(pwk_segment_create(path, NULL, &segment, &error));
    CHECK(strcmp(pwk_segment_path(segment), path) == 0);
    GIVES(PWK_OS, pwk_segment_create(path, NULL, &other, &error));
    CHECK(error.os == EEXIST && other == NULL);
    OK(pwk_segment_open(path, NULL, &other, &error));
    pwk_segment_free(other);
    OK(pwk_segment_open_or_create(path, NULL, &other, &error));
    OK(pwk_geometry_of_path(path, &sizes, sizeof sizes, &error));
    CHECK(sizes.slots == 256 && sizes.request_bytes == 4096);
    pwk_segment_options options;
    pwk_segment_options_init(&options, sizeof options);
    options.slots = 4;
    pwk_segment *none = NULL;
    GIVES(PWK_INCOMPATIBLE, pwk_segment_open(path, &options, &none, &error));
    char text[256];
    pwk_error_text(&error, text, sizeof text);
    CHECK(strcmp(text,
          "reqrep open: slots: the segment has another size than requested") == 0);
    OK(pwk_segment_unlink(segment, &answer, &error));
    CHECK(answer);
    OK(pwk_segment_unlink(other, &answer, &error));
    CHECK(!answer);
    pwk_segment_free(other);
    GIVES(PWK_OS, pwk_segment_open(path, NULL, &none, &error));
    GIVES(PWK_OS, pwk_geometry_of_path(path, &sizes, sizeof sizes, &error));
    CHECK(error.os == ENOENT);
    GIVES(PWK_OS, pwk_segment_open_or_create("/nowhere/at/all", NULL, &none, &error));
    pwk_segment_free(segment);
    segment = NULL;
}

static void a_segment_is_passed_on_by_its_descriptor(void) {
    pwk_segment *other = NULL;
    OK(pwk_segment_memfd("for others", NULL, &segment, &error));
    CHECK(pwk_segment_path(segment) == NULL && pwk_segment_fd(segment) >= 0
          && pwk_segment_fd(NULL) == -1);
    OK(pwk_segment_from_fd(pwk_segment_fd(segment), PWK_FD_DUP, NULL, &other, &error));
    pwk_segment_free(other);
    int copy = dup(pwk_segment_fd(segment));
    OK(pwk_segment_from_fd(copy, PWK_FD_TAKE, NULL, &other, &error));
    pwk_segment_free(other);
    CHECK(fcntl(copy, F_GETFD) == -1);
    GIVES(PWK_INVALID, pwk_segment_from_fd(pwk_segment_fd(segment), PWK_FD_LEND, NULL, &other, &error));
    GIVES(PWK_INVALID, pwk_segment_from_fd(pwk_segment_fd(segment), 77, NULL, &other, &error));
    /* A descriptor that is taken is closed even if the call fails. */
    copy = dup(pwk_segment_fd(segment));
    GIVES(PWK_INVALID, pwk_segment_from_fd(copy, PWK_FD_TAKE, NULL, NULL, &error));
    CHECK(fcntl(copy, F_GETFD) == -1);
    GIVES(PWK_INVALID, pwk_segment_from_fd(copy, PWK_FD_TAKE, NULL, &other, &error));
    GIVES(PWK_INVALID, pwk_segment_from_fd(-1, PWK_FD_TAKE, NULL, &other, &error));
    GIVES(PWK_INVALID, pwk_segment_from_fd(-1, PWK_FD_DUP, NULL, &other, &error));
    CHECK(error.os == EBADF);
    GIVES(PWK_INVALID, pwk_segment_memfd("\xFF", NULL, &other, &error));
    GIVES(PWK_INVALID, pwk_segment_unlink(segment, NULL, &error));
    pwk_segment_free(segment);
    segment = NULL;
}

static void a_descriptor_that_the_program_closed_is_an_error(void) {
    pwk_client *other = NULL;
    pwk_geometry sizes;
    set_up();
    OK(pwk_client_send(client, "x", 1, SOON, &ticket, &error));
    close(pwk_segment_fd(segment));
    GIVES(PWK_OS, pwk_client_new(segment, NULL, &other, &error));
    CHECK(error.os == EBADF && other == NULL);
    OK(pwk_segment_geometry(segment, &sizes, sizeof sizes, &error));
    pwk_client_free(client);
    pwk_server_free(server);
    pwk_segment_free(segment);
    client = NULL;
    server = NULL;
    segment = NULL;
}

static void a_segment_reports(void) {
    pwk_geometry sizes;
    pwk_member members[3];
    pwk_stats stats;
    pwk_audit audit;
    set_up();
    OK(pwk_segment_geometry(segment, &sizes, sizeof sizes, &error));
    CHECK(sizes.slots == 8 && sizes.queue == 16 && sizes.request_bytes == 64 && sizes.members == 256);
    OK(pwk_segment_geometry(segment, &sizes, sizeof sizes.slots, &error));
    OK(pwk_segment_members(segment, members, 1, &count, &error));
    CHECK(count == 2);
    OK(pwk_segment_members(segment, members, 3, &count, &error));
    CHECK(members[0].role == PWK_CLIENT && members[1].role == PWK_SERVER && members[0].is_alive);
    CHECK(members[0].pid == (uint32_t)getpid() && members[0].since_ns > 1600000000000000000);
    OK(pwk_segment_members(segment, NULL, 0, &count, &error));
    OK(pwk_client_send(client, "x", 1, SOON, &ticket, &error));
    CHECK(pwk_segment_len(segment) == 1);
    struct {
        pwk_stats known;
        uint64_t unknown;
    } later = {.unknown = 1};
    OK(pwk_segment_stats(segment, &later.known, sizeof later, &error));
    CHECK(later.known.requests == 1 && later.unknown == 0);
    OK(pwk_segment_audit(segment, &audit, sizeof audit, &error));
    CHECK(audit.waiting == 1 && audit.free == 7 && audit.entries == 1);
    OK(pwk_segment_recover(segment, &count, &error));
    CHECK(count == 0);
    OK(pwk_segment_sync(segment, &error));
    CHECK(pwk_client_segment(client) != NULL && pwk_segment_len(pwk_server_segment(server)) == 1);
    GIVES(PWK_INVALID, pwk_segment_stats(segment, &stats, 0, &error));
    GIVES(PWK_INVALID, pwk_segment_stats(segment, NULL, sizeof stats, &error));
    GIVES(PWK_INVALID, pwk_segment_audit(NULL, &audit, sizeof audit, &error));
    GIVES(PWK_INVALID, pwk_segment_geometry(NULL, &sizes, sizeof sizes, &error));
    GIVES(PWK_INVALID, pwk_segment_members(segment, NULL, 1, &count, &error));
    GIVES(PWK_INVALID, pwk_segment_members(segment, members, 1, NULL, &error));
    GIVES(PWK_INVALID, pwk_segment_recover(NULL, &count, &error));
    GIVES(PWK_INVALID, pwk_segment_sync(NULL, &error));
    tear_down();
}

static void null_is_an_error_where_it_means_nothing(void) {
    pwk_segment *none = NULL;
    pwk_client *nobody = NULL;
    pwk_server *neither = NULL;
    pwk_stream *stream = NULL;
    pwk_request requests[1];
    char into[1];
    set_up();
    GIVES(PWK_INVALID, pwk_segment_create(NULL, NULL, &none, &error));
    NAMES(pwk_segment_create);
    GIVES(PWK_INVALID, pwk_segment_open(NULL, NULL, &none, &error));
    NAMES(pwk_segment_open);
    GIVES(PWK_INVALID, pwk_segment_open_or_create(NULL, NULL, &none, &error));
    NAMES(pwk_segment_open_or_create);
    GIVES(PWK_INVALID, pwk_segment_anonymous(NULL, NULL, &error));
    NAMES(pwk_segment_anonymous);
    GIVES(PWK_INVALID, pwk_segment_memfd(NULL, NULL, &none, &error));
    NAMES(pwk_segment_memfd);
    GIVES(PWK_INVALID, pwk_client_new(NULL, NULL, &nobody, &error));
    NAMES(pwk_client_new);
    GIVES(PWK_INVALID, pwk_client_new(segment, NULL, NULL, NULL));
    GIVES(PWK_INVALID, pwk_server_new(NULL, NULL, &neither, &error));
    NAMES(pwk_server_new);
    GIVES(PWK_INVALID, pwk_client_call(NULL, "x", 1, SOON, &reply, &error));
    NAMES(pwk_client_call);
    GIVES(PWK_INVALID, pwk_client_call(client, NULL, 1, SOON, &reply, &error));
    GIVES(PWK_INVALID, pwk_client_call(client, "x", SIZE_MAX, SOON, &reply, &error));
    GIVES(PWK_INVALID, pwk_client_call(client, "x", 1, SOON, NULL, &error));
    GIVES(PWK_INVALID, pwk_client_call_message(client, "x", 1, 0, SOON, NULL, NULL, &error));
    NAMES(pwk_client_call_message);
    GIVES(PWK_INVALID, pwk_client_call_into(client, "x", 1, 0, SOON, NULL, 1, NULL, NULL, &error));
    NAMES(pwk_client_call_into);
    GIVES(PWK_INVALID, pwk_client_send(client, "x", 1, SOON, NULL, &error));
    NAMES(pwk_client_send);
    GIVES(PWK_INVALID, pwk_client_send_message(client, "x", 1, 0, SOON, NULL, &error));
    NAMES(pwk_client_send_message);
    GIVES(PWK_INVALID, pwk_client_try_send(NULL, "x", 1, &ticket, &error));
    NAMES(pwk_client_try_send);
    GIVES(PWK_INVALID, pwk_client_try_send_message(NULL, "x", 1, 0, &ticket, &error));
    NAMES(pwk_client_try_send_message);
    GIVES(PWK_INVALID, pwk_client_send_many(client, NULL, 1, 0, SOON, &ticket, &count, &error));
    NAMES(pwk_client_send_many);
    GIVES(PWK_INVALID, pwk_client_recv(client, 1, SOON, NULL, &error));
    NAMES(pwk_client_recv);
    GIVES(PWK_INVALID, pwk_client_recv_message(client, 1, SOON, NULL, NULL, &error));
    NAMES(pwk_client_recv_message);
    GIVES(PWK_INVALID, pwk_client_try_recv(NULL, 1, &reply, &error));
    NAMES(pwk_client_try_recv);
    GIVES(PWK_INVALID, pwk_client_try_recv_message(NULL, 1, &reply, NULL, &error));
    NAMES(pwk_client_try_recv_message);
    GIVES(PWK_INVALID, pwk_client_recv_into(client, 1, SOON, into, SIZE_MAX, NULL, NULL, &error));
    NAMES(pwk_client_recv_into);
    GIVES(PWK_INVALID, pwk_client_recv_any(client, SOON, NULL, &reply, &error));
    NAMES(pwk_client_recv_any);
    GIVES(PWK_INVALID, pwk_client_recv_any_message(client, SOON, NULL, &reply, NULL, &error));
    NAMES(pwk_client_recv_any_message);
    GIVES(PWK_INVALID, pwk_client_cancel(NULL, 1, NULL, &error));
    NAMES(pwk_client_cancel);
    GIVES(PWK_INVALID, pwk_client_forget(NULL, 1, &error));
    NAMES(pwk_client_forget);
    GIVES(PWK_INVALID, pwk_client_stream(client, "x", 1, 0, SOON, NULL, &error));
    NAMES(pwk_client_stream);
    GIVES(PWK_INVALID, pwk_stream_next_part(NULL, SOON, &reply, NULL, &error));
    NAMES(pwk_stream_next_part);
    GIVES(PWK_INVALID, pwk_server_recv(NULL, SOON, &data, &request, &error));
    GIVES(PWK_INVALID, pwk_server_recv(server, SOON, NULL, &request, &error));
    GIVES(PWK_INVALID, pwk_server_recv(server, SOON, &data, NULL, &error));
    NAMES(pwk_server_recv);
    GIVES(PWK_INVALID, pwk_server_try_recv(server, &data, NULL, &error));
    NAMES(pwk_server_try_recv);
    GIVES(PWK_INVALID, pwk_server_recv_many(server, 1, SOON, 0, &data, NULL, &count, &error));
    NAMES(pwk_server_recv_many);
    GIVES(PWK_INVALID, pwk_server_drain(server, 1, &data, requests, NULL, &error));
    NAMES(pwk_server_drain);
    GIVES(PWK_INVALID, pwk_server_reply(NULL, 1, "x", 1, &error));
    NAMES(pwk_server_reply);
    GIVES(PWK_INVALID, pwk_server_reply_message(server, 1, NULL, 1, 0, NULL, &error));
    NAMES(pwk_server_reply_message);
    GIVES(PWK_INVALID, pwk_server_reply_until(NULL, 1, "x", 1, 0, SOON, NULL, &error));
    NAMES(pwk_server_reply_until);
    GIVES(PWK_INVALID, pwk_server_part(server, 1, NULL, 1, 0, SOON, NULL, &error));
    NAMES(pwk_server_part);
    GIVES(PWK_INVALID, pwk_server_fail(NULL, 1, NULL, 0, NULL, &error));
    NAMES(pwk_server_fail);
    GIVES(PWK_INVALID, pwk_server_is_wanted(NULL, 1, NULL, &error));
    NAMES(pwk_server_is_wanted);
    GIVES(PWK_INVALID, pwk_server_redeliveries(NULL, 1, NULL, &error));
    NAMES(pwk_server_redeliveries);
    GIVES(PWK_INVALID, pwk_server_adopt(NULL, 1, &error));
    NAMES(pwk_server_adopt);
    GIVES(PWK_INVALID, pwk_server_clear(NULL, NULL, &error));
    NAMES(pwk_server_clear);
    pwk_client_free(NULL);
    pwk_server_free(NULL);
    pwk_stream_free(stream);
    pwk_segment_free(NULL);
    CHECK(pwk_segment_path(NULL) == NULL && pwk_segment_len(NULL) == 0);
    CHECK(pwk_client_forget_all(NULL) == 0 && pwk_client_pending(NULL) == 0);
    CHECK(pwk_client_reply_len(NULL, 1) == 0);
    CHECK(pwk_client_segment(NULL) == NULL && pwk_server_segment(NULL) == NULL);
    tear_down();
}

static const struct test tests[] = {
    TEST(a_call_is_answered),
    TEST(a_call_of_any_size_is_answered),
    TEST(a_ticket_stands_for_a_call),
    TEST(many_requests_share_one_call),
    TEST(who_gives_up_may_say_why),
    TEST(a_reply_that_is_too_long_leaves_the_request_open),
    TEST(a_reply_comes_part_by_part),
    TEST(long_messages_are_sent_without_a_wait_and_come_whole),
    TEST(what_was_forgotten_outlives_its_client),
    TEST(a_child_is_a_member_of_its_own),
    TEST(the_death_of_a_server_is_reported),
    TEST(a_signal_ends_every_wait_and_nothing_is_lost),
    TEST(threads_share_a_client_and_a_server),
    TEST(a_server_is_stopped_from_another_thread),
    TEST(event_loops_have_doorbells),
    TEST(clients_have_options),
    TEST(options_of_other_sizes_are_understood),
    TEST(a_segment_has_a_path),
    TEST(a_segment_is_passed_on_by_its_descriptor),
    TEST(a_descriptor_that_the_program_closed_is_an_error),
    TEST(a_segment_reports),
    TEST(null_is_an_error_where_it_means_nothing),
};
MAIN(tests)
