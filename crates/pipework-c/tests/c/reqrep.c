/* Room reqrep. */
#include "check.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>

static pw_segment *segment;
static pw_client *client;
static pw_server *server;
static pw_buffer data = PW_BUFFER, reply = PW_BUFFER;
static pw_request request;
static uint16_t redeliveries;
static uint64_t ticket;
static uint32_t flags;
static bool answer;
static size_t count;

/* A segment of small slots with a client and a server. */
static void set_up_for(bool integers) {
    pw_reqrep_options options;
    pw_reqrep_options_init(&options, sizeof options);
    options.slots = 8;
    if (!integers) options.request_bytes = options.reply_bytes = 64;
    options.integers = integers;
    OK(pw_reqrep_anonymous(&options, &segment, &error));
    OK(pw_reqrep_client(segment, NULL, &client, &error));
    OK(pw_reqrep_server(segment, NULL, &server, &error));
}

static void set_up(void) {
    set_up_for(false);
}

/* Nothing is left behind in the segment. */
static void is_clean(void) {
    pw_audit audit;
    OK(pw_segment_audit(segment, &audit, sizeof audit, &error));
    CHECK(audit.free == 8 && audit.damaged == 0);
}

static void tear_down(void) {
    pw_client_free(client);
    pw_server_free(server);
    is_clean();
    pw_segment_free(segment);
    client = NULL;
    server = NULL;
    segment = NULL;
    pw_buffer_free(&data);
    pw_buffer_free(&reply);
}

/* Answers with the same bytes and flags, up to an empty request. */
static void *echo(void *none) {
    pw_buffer taken = PW_BUFFER;
    pw_request of;
    do {
        OK(pw_server_recv(server, SOON, &taken, &of, &error));
        OK(pw_server_reply(server, of.ticket, taken.data, taken.len, of.flags, NULL, &error));
    } while (taken.len > 0);
    pw_buffer_free(&taken);
    return none;
}

static void a_call_is_answered(void) {
    char into[8];
    set_up();
    pthread_t thread = started(echo, NULL);
    for (int i = 0; i < 1000; i++) {
        OK(pw_client_call(client, "hello", 5, 7, SOON, &reply, &flags, &error));
        CHECK(holds(&reply, "hello") && flags == 7);
    }
    OK(pw_client_call_into(client, "hello", 5, 9, SOON, into, sizeof into, &count, &flags, &error));
    CHECK(count == 5 && flags == 9 && memcmp(into, "hello", 5) == 0);
    GIVES(PW_TOO_LONG, pw_client_call_into(client, "hello", 5, 0, SOON, into, 4, &count, NULL, &error));
    GIVES(PW_INVALID, pw_client_call(client, reply.data, 5, 0, SOON, &reply, NULL, &error));
    GIVES(PW_INVALID, pw_client_call_into(client, into + 2, 5, 0, SOON, into, 4, &count, NULL, &error));
    OK(pw_client_call(client, NULL, 0, 0, SOON, &reply, NULL, NULL));
    CHECK(reply.len == 0);
    pthread_join(thread, NULL);
    GIVES(PW_TIMED_OUT, pw_client_call(client, "x", 1, 0, SHORT, &reply, NULL, &error));
    GIVES(PW_TIMED_OUT, pw_client_call_into(client, "x", 1, 0, SHORT, into, 8, NULL, NULL, &error));
    GIVES(PW_TIMED_OUT, pw_server_recv(server, SHORT, &data, &request, &error));
    tear_down();
}

static void a_call_of_any_size_is_answered(void) {
    enum { LONG = 1 << 20 };
    char *bytes = malloc(LONG), *into = malloc(LONG);
    set_up();
    for (int i = 0; i < LONG; i++) bytes[i] = (char)(i * 7 + i / 256);
    pthread_t thread = started(echo, NULL);
    OK(pw_client_call(client, bytes, LONG, 7, SOON, &reply, &flags, &error));
    CHECK(reply.len == LONG && flags == 7 && memcmp(reply.data, bytes, LONG) == 0);
    OK(pw_client_call_into(client, bytes, LONG, 7, SOON, into, LONG, &count, NULL, &error));
    CHECK(count == LONG && memcmp(into, bytes, LONG) == 0);
    OK(pw_client_send(client, bytes, 1000, 7, SOON, &ticket, &error));
    OK(pw_client_recv(client, ticket, SOON, &reply, &flags, &error));
    CHECK(reply.len == 1000 && flags == 7 && memcmp(reply.data, bytes, 1000) == 0);
    OK(pw_client_call(client, NULL, 0, 0, SOON, &reply, NULL, &error));
    pthread_join(thread, NULL);
    GIVES(PW_TOO_LONG, pw_client_try_send(client, bytes, 65, 0, &ticket, &error));
    free(bytes);
    free(into);
    tear_down();
}

/* Takes what waits and answers it with these bytes. */
static void answer_with(const char *bytes) {
    OK(pw_server_try_recv(server, &data, &request, &error));
    OK(pw_server_reply(server, request.ticket, bytes, strlen(bytes), 5, &answer, &error));
}

static void a_ticket_stands_for_a_call(void) {
    char into[16];
    uint64_t tickets[8];
    set_up();
    GIVES(PW_WOULD_BLOCK, pw_server_try_recv(server, &data, &request, &error));
    CHECK(error.kind == 0);
    for (int i = 0; i < 8; i++) OK(pw_client_try_send(client, "ask", 3, i, &tickets[i], &error));
    GIVES(PW_WOULD_BLOCK, pw_client_try_send(client, "ask", 3, 0, &ticket, &error));
    GIVES(PW_TIMED_OUT, pw_client_send(client, "ask", 3, 0, SHORT, &ticket, &error));
    CHECK(pw_client_pending(client) == 8 && pw_segment_len(segment) == 8);
    GIVES(PW_WOULD_BLOCK, pw_client_try_recv(client, tickets[0], &reply, &flags, &error));
    GIVES(PW_TIMED_OUT, pw_client_recv(client, tickets[0], SHORT, &reply, &flags, &error));
    GIVES(PW_TIMED_OUT, pw_client_recv_into(client, tickets[0], SHORT, into, 16, &count, NULL, &error));

    OK(pw_server_try_recv(server, &data, &request, &error));
    CHECK(holds(&data, "ask") && request.ticket == tickets[0] && request.flags == 0);
    CHECK(request.offset == 0 && request.len == 3 && request.redeliveries == 0 && !request.has_more);
    OK(pw_server_is_wanted(server, request.ticket, &answer, &error));
    CHECK(answer);
    OK(pw_server_redeliveries(server, request.ticket, &redeliveries, &error));
    CHECK(redeliveries == 0 && pw_ticket_slot(request.ticket) < 8 && pw_ticket_slot(UINT64_MAX) >= 8);
    OK(pw_server_reply(server, request.ticket, "answer", 6, 5, &answer, &error));
    CHECK(answer && pw_client_reply_len(client, tickets[0]) == 6);
    GIVES(PW_STALE, pw_server_reply(server, request.ticket, "again", 5, 0, &answer, &error));
    GIVES(PW_STALE, pw_server_is_wanted(server, request.ticket, &answer, &error));
    GIVES(PW_STALE, pw_server_redeliveries(server, request.ticket, &redeliveries, &error));
    OK(pw_client_try_recv(client, tickets[0], &reply, &flags, &error));
    CHECK(holds(&reply, "answer") && flags == 5);
    GIVES(PW_STALE, pw_client_try_recv(client, tickets[0], &reply, NULL, &error));
    GIVES(PW_STALE, pw_client_recv(client, tickets[0], SOON, &reply, NULL, &error));
    CHECK(pw_client_reply_len(client, tickets[0]) == 0);

    answer_with("answer");
    GIVES(PW_TOO_LONG, pw_client_recv_into(client, tickets[1], SOON, into, 5, &count, NULL, &error));
    OK(pw_client_recv_into(client, tickets[1], SOON, into, 6, &count, &flags, &error));
    CHECK(count == 6 && flags == 5 && memcmp(into, "answer", 6) == 0);

    answer_with("answer");
    OK(pw_client_cancel(client, tickets[2], &answer, &error));
    CHECK(!answer);
    OK(pw_client_recv(client, tickets[2], SOON, &reply, NULL, &error));
    OK(pw_client_cancel(client, tickets[3], &answer, &error));
    CHECK(answer);
    GIVES(PW_STALE, pw_client_cancel(client, tickets[3], &answer, &error));

    OK(pw_server_try_recv(server, &data, &request, &error));
    CHECK(request.ticket == tickets[4]);
    OK(pw_client_cancel(client, tickets[4], NULL, &error));
    OK(pw_server_is_wanted(server, request.ticket, &answer, &error));
    CHECK(!answer);
    OK(pw_server_reply(server, request.ticket, "x", 1, 0, &answer, &error));
    CHECK(!answer);

    OK(pw_client_forget(client, tickets[5], &error));
    GIVES(PW_STALE, pw_client_forget(client, tickets[5], &error));
    OK(pw_server_try_recv(server, &data, &request, &error));
    OK(pw_server_is_wanted(server, request.ticket, &answer, &error));
    CHECK(request.flags == 5 && answer);
    OK(pw_server_reply(server, request.ticket, "x", 1, 0, &answer, &error));
    CHECK(!answer);

    OK(pw_server_clear(server, &count, &error));
    CHECK(count == 2);
    GIVES(PW_FAILED, pw_client_recv(client, tickets[6], SOON, &reply, NULL, &error));
    GIVES(PW_STALE, pw_client_recv(client, 12345, SOON, &reply, NULL, &error));
    GIVES(PW_STALE, pw_server_reply(server, UINT64_MAX, "x", 1, 0, &answer, &error));
    tear_down();
}

static void many_requests_share_one_call(void) {
    const pw_bytes asks[3] = {{"one", 3}, {NULL, 0}, {"three", 5}};
    const pw_bytes bad[2] = {{"one", 3}, {NULL, 1}};
    uint64_t tickets[3];
    pw_request requests[4];
    set_up();
    OK(pw_client_send_many(client, asks, 3, 9, SOON, tickets, &count, &error));
    CHECK(count == 3);
    OK(pw_server_recv_many(server, 4, SOON, 1000000, &data, requests, &count, &error));
    CHECK(count == 3 && holds(&data, "onethree"));
    for (int i = 0; i < 3; i++) {
        CHECK(requests[i].ticket == tickets[i] && requests[i].flags == 9 && requests[i].len == asks[i].len);
        OK(pw_server_reply(server, requests[i].ticket, (char *)data.data + requests[i].offset, requests[i].len, i,
                           NULL, &error));
    }
    for (int i = 0; i < 3; i++) {
        OK(pw_client_recv_any(client, SOON, &ticket, &reply, &flags, &error));
        CHECK(ticket == tickets[flags] && reply.len == asks[flags].len);
    }
    OK(pw_client_recv_any(client, SOON, &ticket, &reply, &flags, &error));
    CHECK(ticket == 0);

    OK(pw_client_send_many(client, asks, 2, 0, SOON, tickets, &count, &error));
    GIVES(PW_TIMED_OUT, pw_client_recv_any(client, SHORT, &ticket, &reply, NULL, &error));
    CHECK(ticket == 0);
    OK(pw_server_drain(server, 4, &data, requests, &count, &error));
    CHECK(count == 2);
    OK(pw_server_fail(server, requests[0].ticket, "no", 2, &answer, &error));
    OK(pw_server_reply(server, requests[1].ticket, "yes", 3, 0, &answer, &error));
    for (int i = 0; i < 2; i++) {
        pw_status status = pw_client_recv_any(client, SOON, &ticket, &reply, NULL, &error);
        CHECK(status == (ticket == tickets[0] ? PW_FAILED : PW_OK));
        CHECK(holds(&reply, ticket == tickets[0] ? "no" : "yes"));
    }
    OK(pw_server_drain(server, 4, &data, requests, &count, &error));
    CHECK(count == 0 && data.len == 0);
    GIVES(PW_TIMED_OUT, pw_server_recv_many(server, 4, SHORT, 0, &data, requests, &count, &error));
    OK(pw_server_recv_many(server, 0, SHORT, 0, &data, NULL, &count, &error));
    CHECK(count == 0);
    OK(pw_client_send_many(client, NULL, 0, 0, SOON, NULL, &count, &error));
    GIVES(PW_INVALID, pw_client_send_many(client, bad, 2, 0, SOON, tickets, &count, &error));
    CHECK(pw_client_pending(client) == 0);
    GIVES(PW_INVALID, pw_server_drain(server, SIZE_MAX, &data, requests, &count, &error));
    tear_down();
}

static void *refuse(void *none) {
    pw_buffer taken = PW_BUFFER;
    pw_request of;
    OK(pw_server_recv(server, SOON, &taken, &of, &error));
    OK(pw_server_fail(server, of.ticket, "why not", 7, NULL, &error));
    pw_buffer_free(&taken);
    return none;
}

static void who_gives_up_may_say_why(void) {
    set_up();
    pthread_t thread = started(refuse, NULL);
    GIVES(PW_FAILED, pw_client_call(client, "ask", 3, 0, SOON, &reply, &flags, &error));
    CHECK(holds(&reply, "why not"));
    pthread_join(thread, NULL);

    OK(pw_client_send(client, "ask", 3, 0, SOON, &ticket, &error));
    OK(pw_server_recv(server, SOON, &data, &request, &error));
    OK(pw_server_fail(server, request.ticket, NULL, 0, &answer, &error));
    CHECK(answer);
    GIVES(PW_STALE, pw_server_fail(server, request.ticket, "no", 2, &answer, &error));
    GIVES(PW_FAILED, pw_client_try_recv(client, ticket, &reply, &flags, &error));
    CHECK(reply.len == 0);

    /* Of a reason, as much arrives as a slot has. */
    char longer[100];
    memset(longer, 'x', sizeof longer);
    OK(pw_client_send(client, "ask", 3, 0, SOON, &ticket, &error));
    OK(pw_server_recv(server, SOON, &data, &request, &error));
    OK(pw_server_fail(server, request.ticket, longer, sizeof longer, &answer, &error));
    GIVES(PW_FAILED, pw_client_recv(client, ticket, SOON, &reply, &flags, &error));
    CHECK(reply.len == 64);
    tear_down();
}

static void a_reply_that_is_too_long_leaves_the_request_open(void) {
    pw_server_options options;
    char longer[200] = {0};
    set_up();
    pw_server_options_init(&options, sizeof options);
    CHECK(options.max_message == 256u << 20 && options.part_timeout_ns == 10000000000);
    options.max_message = 100;
    pw_server_free(server);
    OK(pw_reqrep_server(segment, &options, &server, &error));
    OK(pw_client_send(client, "ask", 3, 0, SOON, &ticket, &error));
    OK(pw_server_recv(server, SOON, &data, &request, &error));
    GIVES(PW_TOO_LONG, pw_server_reply(server, request.ticket, longer, 101, 0, NULL, &error));
    GIVES(PW_TOO_LONG,
          pw_server_reply_until(server, request.ticket, longer, 101, 0, SOON, NULL, &error));
    GIVES(PW_TOO_LONG, pw_server_part(server, request.ticket, longer, 101, 0, SOON, NULL, &error));
    OK(pw_server_reply(server, request.ticket, "short", 5, 0, NULL, &error));
    OK(pw_client_recv(client, ticket, SOON, &reply, NULL, &error));
    CHECK(holds(&reply, "short"));
    /* A client that does not take the parts of a reply does not hold the server for ever. */
    options.part_timeout_ns = 30000000;
    options.max_message = 1000;
    pw_server_free(server);
    OK(pw_reqrep_server(segment, &options, &server, &error));
    OK(pw_client_send(client, "ask", 3, 0, SOON, &ticket, &error));
    OK(pw_server_recv(server, SOON, &data, &request, &error));
    GIVES(PW_TIMED_OUT, pw_server_reply(server, request.ticket, longer, 200, 0, NULL, &error));
    GIVES(PW_STALE, pw_server_reply(server, request.ticket, "short", 5, 0, NULL, &error));
    GIVES(PW_FAILED, pw_client_recv(client, ticket, SOON, &reply, NULL, &error));
    /* The caller says when; its first part is given by then, which ends the request. */
    OK(pw_client_send(client, "ask", 3, 0, SOON, &ticket, &error));
    OK(pw_server_recv(server, SOON, &data, &request, &error));
    GIVES(PW_TIMED_OUT,
          pw_server_reply_until(server, request.ticket, longer, 200, 0, SHORT, NULL, &error));
    GIVES(PW_STALE, pw_server_reply(server, request.ticket, "short", 5, 0, NULL, &error));
    GIVES(PW_FAILED, pw_client_recv(client, ticket, SOON, &reply, NULL, &error));
    options.size = 1;
    GIVES(PW_INVALID, pw_reqrep_server(segment, &options, &server, &error));
    tear_down();
}

/* A hundred parts, the last one empty, for each request; until the client has gone. */
static void *stream_parts(void *none) {
    pw_buffer taken = PW_BUFFER;
    pw_request of;
    char part[32];
    OK(pw_server_recv(server, SOON, &taken, &of, &error));
    bool wanted = true;
    for (int i = 0; i < 100 && wanted; i++) {
        int len = snprintf(part, sizeof part, "part %d", i);
        OK(pw_server_part(server, of.ticket, part, (size_t)len, (uint32_t)i, SOON, &wanted, &error));
    }
    OK(pw_server_reply(server, of.ticket, NULL, 0, 0, NULL, &error));
    pw_buffer_free(&taken);
    return wanted ? none : &answer;
}

static void a_reply_comes_part_by_part(void) {
    pw_stream *stream = NULL;
    char text[32];
    void *gone;
    set_up();
    pthread_t thread = started(stream_parts, NULL);
    OK(pw_client_stream(client, "ask", 3, 0, SOON, &stream, &error));
    for (uint32_t i = 0; i < 100; i++) {
        OK(pw_stream_next_part(stream, SOON, &reply, &flags, &error));
        snprintf(text, sizeof text, "part %d", (int)i);
        CHECK(holds(&reply, text) && flags == i);
    }
    GIVES(PW_CLOSED, pw_stream_next_part(stream, SOON, &reply, &flags, &error));
    GIVES(PW_CLOSED, pw_stream_next_part(stream, SOON, &reply, &flags, &error));
    pw_stream_free(stream);
    pthread_join(thread, &gone);
    CHECK(gone == NULL);

    /* As one reply for a client that does not ask for parts. */
    thread = started(stream_parts, NULL);
    OK(pw_client_call(client, "ask", 3, 0, SOON, &reply, NULL, &error));
    CHECK(reply.len == 10 * 6 + 90 * 7);
    pthread_join(thread, NULL);

    /* Freed before its end, it cancels. */
    thread = started(stream_parts, NULL);
    OK(pw_client_stream(client, "ask", 3, 0, SOON, &stream, &error));
    OK(pw_stream_next_part(stream, SOON, &reply, NULL, &error));
    pw_stream_free(stream);
    pthread_join(thread, &gone);
    CHECK(gone != NULL);

    thread = started(refuse, NULL);
    OK(pw_client_stream(client, "ask", 3, 0, SOON, &stream, &error));
    GIVES(PW_FAILED, pw_stream_next_part(stream, SOON, &reply, NULL, &error));
    CHECK(holds(&reply, "why not"));
    GIVES(PW_CLOSED, pw_stream_next_part(stream, SOON, &reply, NULL, &error));
    pw_stream_free(stream);
    pthread_join(thread, NULL);

    OK(pw_client_stream(client, "ask", 3, 0, SOON, &stream, &error));
    GIVES(PW_TIMED_OUT, pw_stream_next_part(stream, SHORT, &reply, NULL, &error));
    OK(pw_server_recv(server, SOON, &data, &request, &error));
    OK(pw_server_part(server, request.ticket, "one", 3, 0, SOON, &answer, &error));
    GIVES(PW_TIMED_OUT, pw_server_part(server, request.ticket, "two", 3, 0, SHORT, &answer, &error));
    OK(pw_stream_next_part(stream, SOON, &reply, NULL, &error));
    OK(pw_server_part(server, request.ticket, "two", 3, 0, SOON, &answer, &error));
    CHECK(answer);
    OK(pw_stream_next_part(stream, SOON, &reply, NULL, &error));
    CHECK(holds(&reply, "two"));
    OK(pw_server_part(server, request.ticket, "two", 3, 0, SOON, &answer, &error));
    /* Nobody has taken it, and the request stays open. */
    for (int i = 0; i < 2; i++) {
        GIVES(PW_TIMED_OUT,
              pw_server_reply_until(server, request.ticket, "three", 5, 0, SHORT, &answer, &error));
    }
    OK(pw_stream_next_part(stream, SOON, &reply, NULL, &error));
    OK(pw_server_reply_until(server, request.ticket, "three", 5, 0, SOON, &answer, &error));
    CHECK(answer);
    GIVES(PW_STALE, pw_server_reply_until(server, request.ticket, "x", 1, 0, SOON, NULL, &error));
    OK(pw_stream_next_part(stream, SOON, &reply, NULL, &error));
    CHECK(holds(&reply, "three"));
    pw_stream_free(stream);
    GIVES(PW_STALE, pw_server_part(server, request.ticket, "four", 4, 0, SOON, &answer, &error));
    GIVES(PW_STALE, pw_server_flush(server, request.ticket, SOON, &answer, &error));

    /* The reason arrives behind a part only when that was taken. */
    OK(pw_client_stream(client, "ask", 3, 0, SOON, &stream, &error));
    OK(pw_server_recv(server, SOON, &data, &request, &error));
    OK(pw_server_part(server, request.ticket, "one", 3, 0, SOON, &answer, &error));
    OK(pw_stream_next_part(stream, SOON, &reply, NULL, &error));
    OK(pw_server_part(server, request.ticket, "two", 3, 0, SOON, &answer, &error));
    GIVES(PW_TIMED_OUT, pw_server_flush(server, request.ticket, SHORT, &answer, &error));
    OK(pw_stream_next_part(stream, SOON, &reply, NULL, &error));
    answer = false;
    OK(pw_server_flush(server, request.ticket, SOON, &answer, &error));
    CHECK(answer);
    OK(pw_server_fail(server, request.ticket, "no more", 7, &answer, &error));
    GIVES(PW_FAILED, pw_stream_next_part(stream, SOON, &reply, NULL, &error));
    CHECK(holds(&reply, "no more"));
    pw_stream_free(stream);
    tear_down();
}

static void *send_long(void *of) {
    char *bytes = malloc(300);
    memset(bytes, 'a', 300);
    bytes[299] = 'z';
    GIVES(of == NULL ? PW_OK : PW_TIMED_OUT,
          pw_client_call(client, bytes, 300, 3, of == NULL ? SOON : SHORT, &reply, NULL, &error));
    free(bytes);
    return NULL;
}

static void a_request_is_taken_part_by_part(void) {
    set_up();
    GIVES(PW_TIMED_OUT, pw_server_claim(server, SHORT, &data, &request, &error));
    pthread_t thread = started(send_long, NULL);
    OK(pw_server_claim(server, SOON, &data, &request, &error));
    CHECK(data.len == 64 && request.len == 64 && request.has_more && request.flags == 3);
    /* An answer in parts must wait for the rest of the request. */
    GIVES(PW_INVALID, pw_server_part(server, request.ticket, "x", 1, 0, SOON, NULL, &error));
    size_t total = data.len;
    while (request.has_more) {
        OK(pw_server_next_part(server, SOON, &data, &request, &error));
        total += data.len;
    }
    CHECK(total == 300 && ((char *)data.data)[data.len - 1] == 'z');
    GIVES(PW_CLOSED, pw_server_next_part(server, SOON, &data, &request, &error));
    OK(pw_server_reply(server, request.ticket, "done", 4, 0, NULL, &error));
    pthread_join(thread, NULL);
    CHECK(holds(&reply, "done"));
    GIVES(PW_STALE, pw_server_next_part(server, SOON, &data, &request, &error));

    /* What was asked for once is not asked for again. */
    pid_t child = fork();
    if (child == 0) {
        raise(SIGSTOP);
        send_long(NULL);
        _exit(holds(&reply, "done") ? 0 : 1);
    }
    int status;
    CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
    kill(child, SIGCONT);
    OK(pw_server_claim(server, SOON, &data, &request, &error));
    kill(child, SIGSTOP);
    CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
    total = data.len;
    pw_status next = pw_server_next_part(server, SHORT, &data, &request, &error);
    CHECK(next == PW_TIMED_OUT || next == PW_OK);
    if (next == PW_OK) total += data.len;
    GIVES(PW_TIMED_OUT, pw_server_next_part(server, SHORT, &data, &request, &error));
    kill(child, SIGCONT);
    while (request.has_more) {
        OK(pw_server_next_part(server, SOON, &data, &request, &error));
        total += data.len;
    }
    CHECK(total == 300);
    OK(pw_server_reply(server, request.ticket, "done", 4, 0, NULL, &error));
    reap(child);

    thread = started(send_long, &answer);
    OK(pw_server_claim(server, SOON, &data, &request, &error));
    pthread_join(thread, NULL);
    GIVES(PW_CLOSED, pw_server_next_part(server, SOON, &data, &request, &error));
    OK(pw_server_fail(server, request.ticket, NULL, 0, &answer, &error));
    CHECK(!answer);
    tear_down();
}

static void what_was_forgotten_outlives_its_client(void) {
    set_up();
    OK(pw_client_send(client, "gone", 4, 0, SOON, &ticket, &error));
    pw_client_free(client);
    OK(pw_reqrep_client(segment, NULL, &client, &error));
    GIVES(PW_WOULD_BLOCK, pw_server_try_recv(server, &data, &request, &error));
    for (int i = 0; i < 3; i++) OK(pw_client_send(client, "stays", 5, 0, SOON, &ticket, &error));
    CHECK(pw_client_forget_all(client) == 3 && pw_client_forget_all(client) == 0);
    GIVES(PW_STALE, pw_client_recv(client, ticket, SOON, &reply, NULL, &error));
    pw_client_free(client);
    client = NULL;
    for (int i = 0; i < 3; i++) answer_with("nobody waits");
    CHECK(holds(&data, "stays"));
    tear_down();
}

static void a_child_is_a_member_of_its_own(void) {
    set_up();
    OK(pw_client_send(client, "first", 5, 0, SOON, &ticket, &error));
    OK(pw_server_recv(server, SOON, &data, &request, &error));
    pid_t child = fork();
    if (child == 0) {
        /* What the parent has sent is not the child's, and what it has taken only when adopted. */
        CHECK(pw_client_forget_all(client) == 0);
        GIVES(PW_STALE, pw_client_recv(client, ticket, SOON, &reply, NULL, &error));
        GIVES(PW_STALE, pw_server_reply(server, request.ticket, "no", 2, 0, NULL, &error));
        OK(pw_server_adopt(server, request.ticket, &error));
        GIVES(PW_STALE, pw_server_adopt(server, request.ticket, &error));
        OK(pw_server_reply(server, request.ticket, "child's", 7, 0, NULL, &error));
        OK(pw_client_call(client, "second", 6, 0, SOON, &reply, NULL, &error));
        CHECK(holds(&reply, "second"));
        pw_client_free(client);
        pw_server_free(server);
        pw_segment_free(segment);
        _exit(0);
    }
    OK(pw_client_recv(client, ticket, SOON, &reply, NULL, &error));
    CHECK(holds(&reply, "child's"));
    GIVES(PW_STALE, pw_server_reply(server, request.ticket, "parent's", 8, 0, NULL, &error));
    OK(pw_server_recv(server, SOON, &data, &request, &error));
    OK(pw_server_reply(server, request.ticket, data.data, data.len, 0, NULL, &error));
    reap(child);
    GIVES(PW_STALE, pw_server_adopt(server, 7, &error));
    tear_down();
}

static void the_death_of_a_server_is_reported(void) {
    set_up();
    pw_server_free(server);
    pid_t child = fork();
    if (child == 0) {
        OK(pw_reqrep_server(segment, NULL, &server, &error));
        OK(pw_server_recv(server, SOON, &data, &request, &error));
        kill(getpid(), SIGKILL);
    }
    GIVES(PW_PEER_DIED, pw_client_call(client, "ask", 3, 0, SOON, &reply, NULL, &error));
    waitpid(child, NULL, 0);
    OK(pw_segment_recover(segment, &count, &error));
    pw_stats stats;
    OK(pw_segment_stats(segment, &stats, sizeof stats, &error));
    CHECK(stats.requests == 1 && stats.dead_members == 1);
    OK(pw_reqrep_server(segment, NULL, &server, &error));
    tear_down();
}

static void a_signal_ends_every_wait_and_nothing_is_lost(void) {
    struct signals signals;
    uint64_t tickets[8];
    char into[8];
    pw_stream *stream = NULL;
    pw_request requests[8];
    set_up();
    begin(&signals);
    GIVES(PW_INTERRUPTED, pw_server_recv(server, SOON, &data, &request, &error));
    GIVES(PW_INTERRUPTED, pw_server_claim(server, SOON, &data, &request, &error));
    GIVES(PW_INTERRUPTED, pw_server_recv_many(server, 8, SOON, 0, &data, requests, &count, &error));
    GIVES(PW_INTERRUPTED, pw_client_call(client, "ask", 3, 0, SOON, &reply, NULL, &error));
    GIVES(PW_INTERRUPTED, pw_client_call_into(client, "ask", 3, 0, SOON, into, 8, NULL, NULL, &error));
    CHECK(pw_client_pending(client) == 0);
    OK(pw_client_stream(client, "ask", 3, 0, SOON, &stream, &error));
    GIVES(PW_INTERRUPTED, pw_stream_next_part(stream, SOON, &reply, NULL, &error));
    for (int i = 0; i < 7; i++) OK(pw_client_send(client, "ask", 3, 0, SOON, &tickets[i], &error));
    GIVES(PW_INTERRUPTED, pw_client_send(client, "ask", 3, 0, SOON, &ticket, &error));
    GIVES(PW_INTERRUPTED, pw_client_stream(client, "ask", 3, 0, SOON, &stream, &error));
    const pw_bytes one = {"ask", 3};
    GIVES(PW_INTERRUPTED, pw_client_send_many(client, &one, 1, 0, SOON, &ticket, &count, &error));
    GIVES(PW_INTERRUPTED, pw_client_recv(client, tickets[0], SOON, &reply, NULL, &error));
    GIVES(PW_INTERRUPTED, pw_client_recv_into(client, tickets[0], SOON, into, 8, NULL, NULL, &error));
    GIVES(PW_INTERRUPTED, pw_client_recv_any(client, SOON, &ticket, &reply, NULL, &error));
    OK(pw_server_recv(server, SOON, &data, &request, &error));
    OK(pw_server_part(server, request.ticket, "one", 3, 0, SOON, NULL, &error));
    GIVES(PW_INTERRUPTED, pw_server_part(server, request.ticket, "two", 3, 0, SOON, NULL, &error));
    end(&signals);
    OK(pw_server_recv_many(server, 8, SOON, 0, &data, requests, &count, &error));
    CHECK(count == 7);
    for (int i = 0; i < 7; i++) {
        OK(pw_server_reply(server, requests[i].ticket, "answer", 6, 0, NULL, &error));
        OK(pw_client_recv(client, tickets[i], SOON, &reply, NULL, &error));
        CHECK(holds(&reply, "answer"));
    }
    OK(pw_stream_next_part(stream, SOON, &reply, NULL, &error));
    CHECK(holds(&reply, "one"));
    pw_stream_free(stream);
    OK(pw_server_fail(server, request.ticket, NULL, 0, NULL, &error));
    tear_down();
}

/* A thousand calls with numbers of its own, through what all threads share. */
static void *call_often(void *of) {
    pw_buffer got = PW_BUFFER;
    char text[32];
    for (int i = 0; i < 1000; i++) {
        int len = snprintf(text, sizeof text, "%d %d", *(int *)of, i);
        OK(pw_client_call(client, text, (size_t)len, 0, SOON, &got, NULL, &error));
        CHECK(holds(&got, text));
    }
    pw_buffer_free(&got);
    return NULL;
}

static void threads_share_a_client_and_a_server(void) {
    pthread_t callers[4], servers[2];
    int numbers[4] = {1, 2, 3, 4};
    set_up();
    for (int i = 0; i < 2; i++) servers[i] = started(echo, NULL);
    for (int i = 0; i < 4; i++) callers[i] = started(call_often, &numbers[i]);
    for (int i = 0; i < 4; i++) pthread_join(callers[i], NULL);
    for (int i = 0; i < 2; i++) OK(pw_client_call(client, NULL, 0, 0, SOON, &reply, NULL, &error));
    for (int i = 0; i < 2; i++) pthread_join(servers[i], NULL);
    tear_down();
}

static void *wait_for_stop(void *none) {
    pw_buffer taken = PW_BUFFER;
    pw_request of;
    GIVES(PW_CLOSED, pw_server_recv(server, SOON, &taken, &of, &error));
    pw_buffer_free(&taken);
    return none;
}

static void a_server_is_stopped_from_another_thread(void) {
    set_up();
    OK(pw_client_send(client, "ask", 3, 0, SOON, &ticket, &error));
    OK(pw_server_recv(server, SOON, &data, &request, &error));
    pthread_t thread = started(wait_for_stop, NULL);
    usleep(20000);
    pw_server_stop(server);
    pw_server_stop(NULL);
    pthread_join(thread, NULL);
    GIVES(PW_CLOSED, pw_server_try_recv(server, &data, &request, &error));
    GIVES(PW_CLOSED, pw_server_clear(server, &count, &error));
    OK(pw_server_reply(server, ticket, "late", 4, 0, &answer, &error));
    OK(pw_client_recv(client, ticket, SOON, &reply, NULL, &error));
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
    OK(pw_server_doorbell(server, &requests, &error));
    OK(pw_client_doorbell(client, &replies, &error));
    OK(pw_client_send_doorbell(client, &space, &error));
    GIVES(PW_WOULD_BLOCK, pw_server_try_recv(server, &data, &request, &error));
    CHECK(!is_readable(requests, 0) && !is_readable(replies, 0));
    OK(pw_client_try_send(client, "ask", 3, 0, &ticket, &error));
    CHECK(is_readable(requests, 5000) && is_readable(space, 5000));
    answer_with("answer");
    CHECK(is_readable(replies, 5000));
    OK(pw_client_try_recv(client, ticket, &reply, NULL, &error));
    CHECK(fcntl(requests, F_GETFD) == FD_CLOEXEC);
    close(requests);
    close(replies);
    close(space);
    GIVES(PW_INVALID, pw_server_doorbell(server, NULL, &error));
    GIVES(PW_INVALID, pw_client_doorbell(NULL, &replies, &error));
    GIVES(PW_INVALID, pw_client_send_doorbell(client, NULL, &error));
    tear_down();
}

static void eventfds_are_rung_by_hand(void) {
    pw_eventfd *bell = NULL, *other = NULL;
    int fd = -1, again = -1, bad = -1;
    OK(pw_eventfd_new(&bell, &error));
    GIVES(PW_INVALID, pw_eventfd_new(NULL, &error));
    CHECK(pw_eventfd_fd(bell) == -1 && !pw_eventfd_ring(bell) && pw_eventfd_consume(bell) == 0);
    OK(pw_eventfd_create(bell, &fd, &error));
    OK(pw_eventfd_create(bell, &again, &error));
    CHECK(fd >= 0 && fd == again && pw_eventfd_fd(bell) == fd);
    GIVES(PW_INVALID, pw_eventfd_create(NULL, &fd, &error));
    OK(pw_eventfd_new(&other, &error));
    OK(pw_eventfd_set(other, fd, &error));
    CHECK(pw_eventfd_fd(other) >= 0 && pw_eventfd_fd(other) != fd);
    CHECK(pw_eventfd_ring(bell) && pw_eventfd_ring(other) && is_readable(fd, 0));
    CHECK(pw_eventfd_consume(other) == 2 && pw_eventfd_consume(bell) == 0);
    GIVES(PW_INVALID, pw_eventfd_set(other, bad, &error));
    CHECK(error.os == EBADF);
    GIVES(PW_INVALID, pw_eventfd_set(NULL, fd, &error));
    pw_eventfd_free(bell);
    pw_eventfd_free(other);
    pw_eventfd_free(NULL);
    CHECK(pw_eventfd_fd(NULL) == -1 && !pw_eventfd_ring(NULL) && pw_eventfd_consume(NULL) == 0);
    CHECK(fcntl(fd, F_GETFD) == -1);
}

static void numbers_are_called_with(void) {
    int64_t values[4], number;
    pw_request requests[4];
    uint64_t tickets[3];
    set_up_for(true);
    GIVES(PW_WOULD_BLOCK, pw_server_try_recv_int(server, &number, &request, &error));
    GIVES(PW_TIMED_OUT, pw_server_recv_int(server, SHORT, &number, &request, &error));
    OK(pw_client_send_int(client, INT64_MIN, SOON, &ticket, &error));
    GIVES(PW_WOULD_BLOCK, pw_client_try_recv_int(client, ticket, &number, &error));
    OK(pw_server_try_recv_int(server, &number, &request, &error));
    CHECK(number == INT64_MIN && request.ticket == ticket);
    OK(pw_server_reply_int(server, ticket, INT64_MAX, &answer, &error));
    GIVES(PW_STALE, pw_server_reply_int(server, ticket, 1, &answer, &error));
    OK(pw_client_try_recv_int(client, ticket, &number, &error));
    CHECK(number == INT64_MAX && answer);
    for (int i = 0; i < 3; i++) OK(pw_client_try_send_int(client, i, &tickets[i], &error));
    OK(pw_server_recv_many_int(server, 4, SOON, 0, values, requests, &count, &error));
    CHECK(count == 3);
    for (int i = 0; i < 3; i++) {
        CHECK(values[i] == i && requests[i].ticket == tickets[i]);
        OK(pw_server_reply_int(server, tickets[i], -i, NULL, &error));
        OK(pw_client_recv_int(client, tickets[i], SOON, &number, &error));
        CHECK(number == -i);
    }
    pid_t child = fork();
    if (child == 0) {
        OK(pw_client_call_int(client, 41, SOON, &number, &error));
        _exit(number == 42 ? 0 : 1);
    }
    OK(pw_server_recv_int(server, SOON, &number, &request, &error));
    OK(pw_server_reply_int(server, request.ticket, number + 1, NULL, &error));
    reap(child);
    OK(pw_client_recv_any_int(client, SOON, &ticket, &number, &error));
    CHECK(ticket == 0);
    OK(pw_client_send_int(client, 6, SOON, &tickets[0], &error));
    GIVES(PW_TIMED_OUT, pw_client_recv_any_int(client, SHORT, &ticket, &number, &error));
    CHECK(ticket == 0);
    OK(pw_server_recv_int(server, SOON, &number, &request, &error));
    OK(pw_server_reply_int(server, request.ticket, number + 1, NULL, &error));
    OK(pw_client_recv_any_int(client, SOON, &ticket, &number, &error));
    CHECK(ticket == tickets[0] && number == 7);
    GIVES(PW_TIMED_OUT, pw_client_call_int(client, 1, SHORT, &number, &error));
    GIVES(PW_STALE, pw_client_recv_int(client, tickets[0], SHORT, &number, &error));
    GIVES(PW_TIMED_OUT, pw_server_recv_many_int(server, 4, SHORT, 0, values, requests, &count, &error));

    GIVES(PW_INCOMPATIBLE, pw_client_call(client, "x", 1, 0, SOON, &reply, NULL, &error));
    GIVES(PW_INCOMPATIBLE, pw_server_recv(server, SHORT, &data, &request, &error));
    tear_down();
    set_up();
    GIVES(PW_INCOMPATIBLE, pw_client_send_int(client, 1, SOON, &ticket, &error));
    GIVES(PW_INCOMPATIBLE, pw_client_try_send_int(client, 1, &ticket, &error));
    GIVES(PW_INCOMPATIBLE, pw_client_recv_any_int(client, SHORT, &ticket, &number, &error));
    GIVES(PW_INCOMPATIBLE, pw_server_try_recv_int(server, &number, &request, &error));
    tear_down();
}

static void *answer_at_length(void *none) {
    const char longer[200] = {0};
    pw_buffer taken = PW_BUFFER;
    pw_request of;
    bool wanted = true;
    OK(pw_server_recv(server, SOON, &taken, &of, &error));
    OK(pw_server_reply(server, of.ticket, longer, sizeof longer, 0, &wanted, &error));
    CHECK(!wanted);
    pw_buffer_free(&taken);
    return none;
}

static void clients_have_options(void) {
    pw_client_options options;
    uint64_t sent;
    const char longer[101] = {0};
    set_up();
    pw_client_free(client);
    pw_server_free(server);
    pw_client_options_init(&options, sizeof options);
    CHECK(options.max_message == 256u << 20 && !options.needs_server && options.redeliveries == 0);
    options.needs_server = true;
    options.max_message = 100;
    options.max_in_flight = 1;
    OK(pw_reqrep_client(segment, &options, &client, &error));
    GIVES(PW_NO_SERVER, pw_client_call(client, "x", 1, 0, SOON, &reply, NULL, &error));
    GIVES(PW_TOO_LONG, pw_client_call(client, longer, 101, 0, SOON, &reply, NULL, &error));
    OK(pw_reqrep_server(segment, NULL, &server, &error));
    OK(pw_client_try_send(client, "x", 1, 0, &sent, &error));
    GIVES(PW_WOULD_BLOCK, pw_client_try_send(client, "x", 1, 0, &ticket, &error));
    /* The call has ended with that, and not the wait. */
    pthread_t thread = started(answer_at_length, NULL);
    GIVES(PW_TOO_LONG, pw_client_recv_any(client, SOON, &ticket, &reply, NULL, &error));
    CHECK(ticket == sent && pw_client_pending(client) == 0);
    pthread_join(thread, NULL);
    tear_down();
}

static void options_of_other_sizes_are_understood(void) {
    pw_reqrep_options options;
    /* A program of an earlier version knows the slots and no more. */
    pw_reqrep_options_init(&options, offsetof(pw_reqrep_options, queue));
    CHECK(options.size == offsetof(pw_reqrep_options, queue) && options.slots == PW_UNSET);
    options.slots = 4;
    options.queue = 0;
    OK(pw_reqrep_anonymous(&options, &segment, &error));
    pw_segment_free(segment);
    /* One of a later version sets nothing that this library does not know. */
    struct {
        pw_reqrep_options known;
        uint64_t unknown;
    } later;
    pw_reqrep_options_init(&later.known, sizeof later);
    CHECK(later.known.size == sizeof later && later.unknown == 0);
    OK(pw_reqrep_anonymous(&later.known, &segment, &error));
    pw_segment_free(segment);
    later.unknown = 1;
    GIVES(PW_INVALID, pw_reqrep_anonymous(&later.known, &segment, &error));
    NAMES(pw_reqrep_anonymous);
    later.known.size = 0;
    GIVES(PW_INVALID, pw_reqrep_anonymous(&later.known, &segment, &error));
    pw_reqrep_options_init(NULL, sizeof options);
    pw_client_options_init(NULL, 0);
    pw_server_options_init(NULL, 0);
    pw_reqrep_options_init(&options, sizeof options);
    options.slots = 0;
    GIVES(PW_INVALID, pw_reqrep_anonymous(&options, &segment, &error));
    memset(&options, 0xFF, sizeof options);
    options.size = sizeof options;
    options.integers = false;
    OK(pw_reqrep_anonymous(&options, &segment, &error));
    pw_segment_free(segment);
    segment = NULL;
}

static void a_segment_has_a_path(void) {
    char path[64];
    pw_geometry sizes;
    pw_segment *other = NULL;
    snprintf(path, sizeof path, "/dev/shm/pw-c-%d", (int)getpid());
    OK(pw_reqrep_create(path, NULL, &segment, &error));
    CHECK(strcmp(pw_segment_path(segment), path) == 0);
    GIVES(PW_OS, pw_reqrep_create(path, NULL, &other, &error));
    CHECK(error.os == EEXIST && other == NULL);
    OK(pw_reqrep_open(path, NULL, &other, &error));
    pw_segment_free(other);
    OK(pw_reqrep_open_or_create(path, NULL, &other, &error));
    OK(pw_reqrep_geometry(path, &sizes, sizeof sizes, &error));
    CHECK(sizes.slots == 256 && sizes.request_bytes == 4096 && !sizes.integers);
    pw_reqrep_options options;
    pw_reqrep_options_init(&options, sizeof options);
    options.slots = 4;
    pw_segment *none = NULL;
    GIVES(PW_INCOMPATIBLE, pw_reqrep_open(path, &options, &none, &error));
    char text[256];
    pw_error_text(&error, text, sizeof text);
    CHECK(strcmp(text, "reqrep open: slots: the segment was made with another size than was asked for") == 0);
    OK(pw_segment_unlink(segment, &answer, &error));
    CHECK(answer);
    OK(pw_segment_unlink(other, &answer, &error));
    CHECK(!answer);
    pw_segment_free(other);
    GIVES(PW_OS, pw_reqrep_open(path, NULL, &none, &error));
    GIVES(PW_OS, pw_reqrep_geometry(path, &sizes, sizeof sizes, &error));
    CHECK(error.os == ENOENT);
    GIVES(PW_OS, pw_reqrep_open_or_create("/nowhere/at/all", NULL, &none, &error));
    pw_segment_free(segment);
    segment = NULL;
}

static void a_segment_is_passed_on_by_its_descriptor(void) {
    pw_segment *other = NULL;
    OK(pw_reqrep_memfd("for others", NULL, &segment, &error));
    CHECK(pw_segment_path(segment) == NULL && pw_segment_fd(segment) >= 0 && pw_segment_fd(NULL) == -1);
    OK(pw_reqrep_open_fd(pw_segment_fd(segment), PW_FD_DUP, NULL, &other, &error));
    pw_segment_free(other);
    int copy = dup(pw_segment_fd(segment));
    OK(pw_reqrep_open_fd(copy, PW_FD_TAKE, NULL, &other, &error));
    pw_segment_free(other);
    CHECK(fcntl(copy, F_GETFD) == -1);
    GIVES(PW_INVALID, pw_reqrep_open_fd(pw_segment_fd(segment), PW_FD_LEND, NULL, &other, &error));
    GIVES(PW_INVALID, pw_reqrep_open_fd(pw_segment_fd(segment), 77, NULL, &other, &error));
    /* What is taken is closed also where the call fails. */
    copy = dup(pw_segment_fd(segment));
    GIVES(PW_INVALID, pw_reqrep_open_fd(copy, PW_FD_TAKE, NULL, NULL, &error));
    CHECK(fcntl(copy, F_GETFD) == -1);
    GIVES(PW_INVALID, pw_reqrep_open_fd(copy, PW_FD_TAKE, NULL, &other, &error));
    GIVES(PW_INVALID, pw_reqrep_open_fd(-1, PW_FD_TAKE, NULL, &other, &error));
    GIVES(PW_INVALID, pw_reqrep_open_fd(-1, PW_FD_DUP, NULL, &other, &error));
    CHECK(error.os == EBADF);
    GIVES(PW_INVALID, pw_reqrep_memfd("\xFF", NULL, &other, &error));
    GIVES(PW_INVALID, pw_segment_unlink(segment, NULL, &error));
    pw_segment_free(segment);
    segment = NULL;
}

static void a_descriptor_that_the_program_closed_is_an_error(void) {
    pw_client *other = NULL;
    pw_geometry sizes;
    set_up();
    OK(pw_client_send(client, "x", 1, 0, SOON, &ticket, &error));
    close(pw_segment_fd(segment));
    GIVES(PW_OS, pw_reqrep_client(segment, NULL, &other, &error));
    CHECK(error.os == EBADF && other == NULL);
    OK(pw_segment_geometry(segment, &sizes, sizeof sizes, &error));
    pw_client_free(client);
    pw_server_free(server);
    pw_segment_free(segment);
    client = NULL;
    server = NULL;
    segment = NULL;
}

static void a_segment_reports(void) {
    pw_geometry sizes;
    pw_member members[3];
    pw_stats stats;
    pw_audit audit;
    set_up();
    OK(pw_segment_geometry(segment, &sizes, sizeof sizes, &error));
    CHECK(sizes.slots == 8 && sizes.queue == 16 && sizes.request_bytes == 64 && sizes.members == 256);
    OK(pw_segment_geometry(segment, &sizes, sizeof sizes.slots, &error));
    OK(pw_segment_members(segment, members, 1, &count, &error));
    CHECK(count == 2);
    OK(pw_segment_members(segment, members, 3, &count, &error));
    CHECK(members[0].role == PW_CLIENT && members[1].role == PW_SERVER && members[0].is_alive);
    CHECK(members[0].pid == (uint32_t)getpid() && members[0].since_ns > 1600000000000000000);
    OK(pw_segment_members(segment, NULL, 0, &count, &error));
    OK(pw_client_send(client, "x", 1, 0, SOON, &ticket, &error));
    CHECK(pw_segment_len(segment) == 1);
    struct {
        pw_stats known;
        uint64_t unknown;
    } later = {.unknown = 1};
    OK(pw_segment_stats(segment, &later.known, sizeof later, &error));
    CHECK(later.known.requests == 1 && later.unknown == 0);
    OK(pw_segment_audit(segment, &audit, sizeof audit, &error));
    CHECK(audit.waiting == 1 && audit.free == 7 && audit.entries == 1);
    OK(pw_segment_recover(segment, &count, &error));
    CHECK(count == 0);
    OK(pw_segment_sync(segment, &error));
    CHECK(pw_client_segment(client) != NULL && pw_segment_len(pw_server_segment(server)) == 1);
    GIVES(PW_INVALID, pw_segment_stats(segment, &stats, 0, &error));
    GIVES(PW_INVALID, pw_segment_stats(segment, NULL, sizeof stats, &error));
    GIVES(PW_INVALID, pw_segment_audit(NULL, &audit, sizeof audit, &error));
    GIVES(PW_INVALID, pw_segment_geometry(NULL, &sizes, sizeof sizes, &error));
    GIVES(PW_INVALID, pw_segment_members(segment, NULL, 1, &count, &error));
    GIVES(PW_INVALID, pw_segment_members(segment, members, 1, NULL, &error));
    GIVES(PW_INVALID, pw_segment_recover(NULL, &count, &error));
    GIVES(PW_INVALID, pw_segment_sync(NULL, &error));
    tear_down();
}

static void null_is_an_error_where_it_means_nothing(void) {
    pw_segment *none = NULL;
    pw_client *nobody = NULL;
    pw_server *neither = NULL;
    pw_stream *stream = NULL;
    pw_request requests[1];
    char into[1];
    set_up();
    GIVES(PW_INVALID, pw_reqrep_create(NULL, NULL, &none, &error));
    NAMES(pw_reqrep_create);
    GIVES(PW_INVALID, pw_reqrep_open(NULL, NULL, &none, &error));
    NAMES(pw_reqrep_open);
    GIVES(PW_INVALID, pw_reqrep_open_or_create(NULL, NULL, &none, &error));
    NAMES(pw_reqrep_open_or_create);
    GIVES(PW_INVALID, pw_reqrep_anonymous(NULL, NULL, &error));
    NAMES(pw_reqrep_anonymous);
    GIVES(PW_INVALID, pw_reqrep_memfd(NULL, NULL, &none, &error));
    NAMES(pw_reqrep_memfd);
    GIVES(PW_INVALID, pw_reqrep_client(NULL, NULL, &nobody, &error));
    NAMES(pw_reqrep_client);
    GIVES(PW_INVALID, pw_reqrep_client(segment, NULL, NULL, NULL));
    GIVES(PW_INVALID, pw_reqrep_server(NULL, NULL, &neither, &error));
    NAMES(pw_reqrep_server);
    GIVES(PW_INVALID, pw_client_call(NULL, "x", 1, 0, SOON, &reply, NULL, &error));
    NAMES(pw_client_call);
    GIVES(PW_INVALID, pw_client_call(client, NULL, 1, 0, SOON, &reply, NULL, &error));
    GIVES(PW_INVALID, pw_client_call(client, "x", SIZE_MAX, 0, SOON, &reply, NULL, &error));
    GIVES(PW_INVALID, pw_client_call(client, "x", 1, 0, SOON, NULL, NULL, &error));
    GIVES(PW_INVALID, pw_client_call_into(client, "x", 1, 0, SOON, NULL, 1, NULL, NULL, &error));
    NAMES(pw_client_call_into);
    GIVES(PW_INVALID, pw_client_send(client, "x", 1, 0, SOON, NULL, &error));
    NAMES(pw_client_send);
    GIVES(PW_INVALID, pw_client_try_send(NULL, "x", 1, 0, &ticket, &error));
    NAMES(pw_client_try_send);
    GIVES(PW_INVALID, pw_client_send_many(client, NULL, 1, 0, SOON, &ticket, &count, &error));
    NAMES(pw_client_send_many);
    GIVES(PW_INVALID, pw_client_recv(client, 1, SOON, NULL, NULL, &error));
    NAMES(pw_client_recv);
    GIVES(PW_INVALID, pw_client_try_recv(NULL, 1, &reply, NULL, &error));
    NAMES(pw_client_try_recv);
    GIVES(PW_INVALID, pw_client_recv_into(client, 1, SOON, into, SIZE_MAX, NULL, NULL, &error));
    NAMES(pw_client_recv_into);
    GIVES(PW_INVALID, pw_client_recv_any(client, SOON, NULL, &reply, NULL, &error));
    NAMES(pw_client_recv_any);
    GIVES(PW_INVALID, pw_client_cancel(NULL, 1, NULL, &error));
    NAMES(pw_client_cancel);
    GIVES(PW_INVALID, pw_client_forget(NULL, 1, &error));
    NAMES(pw_client_forget);
    GIVES(PW_INVALID, pw_client_stream(client, "x", 1, 0, SOON, NULL, &error));
    NAMES(pw_client_stream);
    GIVES(PW_INVALID, pw_stream_next_part(NULL, SOON, &reply, NULL, &error));
    NAMES(pw_stream_next_part);
    GIVES(PW_INVALID, pw_server_recv(NULL, SOON, &data, &request, &error));
    GIVES(PW_INVALID, pw_server_recv(server, SOON, NULL, &request, &error));
    GIVES(PW_INVALID, pw_server_recv(server, SOON, &data, NULL, &error));
    NAMES(pw_server_recv);
    GIVES(PW_INVALID, pw_server_try_recv(server, &data, NULL, &error));
    NAMES(pw_server_try_recv);
    GIVES(PW_INVALID, pw_server_recv_many(server, 1, SOON, 0, &data, NULL, &count, &error));
    NAMES(pw_server_recv_many);
    GIVES(PW_INVALID, pw_server_drain(server, 1, &data, requests, NULL, &error));
    NAMES(pw_server_drain);
    GIVES(PW_INVALID, pw_server_claim(server, SOON, NULL, &request, &error));
    NAMES(pw_server_claim);
    GIVES(PW_INVALID, pw_server_next_part(server, SOON, &data, NULL, &error));
    NAMES(pw_server_next_part);
    GIVES(PW_INVALID, pw_server_reply(NULL, 1, "x", 1, 0, NULL, &error));
    NAMES(pw_server_reply);
    GIVES(PW_INVALID, pw_server_reply_until(NULL, 1, "x", 1, 0, SOON, NULL, &error));
    NAMES(pw_server_reply_until);
    GIVES(PW_INVALID, pw_server_part(server, 1, NULL, 1, 0, SOON, NULL, &error));
    NAMES(pw_server_part);
    GIVES(PW_INVALID, pw_server_fail(NULL, 1, NULL, 0, NULL, &error));
    NAMES(pw_server_fail);
    GIVES(PW_INVALID, pw_server_is_wanted(NULL, 1, NULL, &error));
    NAMES(pw_server_is_wanted);
    GIVES(PW_INVALID, pw_server_redeliveries(NULL, 1, NULL, &error));
    NAMES(pw_server_redeliveries);
    GIVES(PW_INVALID, pw_server_adopt(NULL, 1, &error));
    NAMES(pw_server_adopt);
    GIVES(PW_INVALID, pw_server_clear(NULL, NULL, &error));
    NAMES(pw_server_clear);
    pw_client_free(NULL);
    pw_server_free(NULL);
    pw_stream_free(stream);
    pw_segment_free(NULL);
    CHECK(pw_segment_path(NULL) == NULL && pw_segment_len(NULL) == 0);
    CHECK(pw_client_forget_all(NULL) == 0 && pw_client_pending(NULL) == 0);
    CHECK(pw_client_reply_len(NULL, 1) == 0);
    CHECK(pw_client_segment(NULL) == NULL && pw_server_segment(NULL) == NULL);
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
    TEST(a_request_is_taken_part_by_part),
    TEST(what_was_forgotten_outlives_its_client),
    TEST(a_child_is_a_member_of_its_own),
    TEST(the_death_of_a_server_is_reported),
    TEST(a_signal_ends_every_wait_and_nothing_is_lost),
    TEST(threads_share_a_client_and_a_server),
    TEST(a_server_is_stopped_from_another_thread),
    TEST(event_loops_have_doorbells),
    TEST(eventfds_are_rung_by_hand),
    TEST(numbers_are_called_with),
    TEST(clients_have_options),
    TEST(options_of_other_sizes_are_understood),
    TEST(a_segment_has_a_path),
    TEST(a_segment_is_passed_on_by_its_descriptor),
    TEST(a_descriptor_that_the_program_closed_is_an_error),
    TEST(a_segment_reports),
    TEST(null_is_an_error_where_it_means_nothing),
};
MAIN(tests)
