/* The answering end: requests by their ids. */
#include "reqrep.h"

/* How many requests are taken from the segment at a time. */
#define MOST_AT_ONCE 64

/* Requests that were taken; their bytes are in the scratch memory. */
typedef struct taking {
    pwp_subject subject;
    size_t max, count;
    pwk_request requests[MOST_AT_ONCE];
} taking;

/* ---------------------------------------------------------------- taking requests */

/* Waits for the first one, and takes those that are there, up to `max`. */
static pwk_status take_slice(pTHX_ void *arguments, pwk_deadline until, pwk_error *error) {
    taking *of = arguments;
    pwp_channel *channel = pwp_channel_again(aTHX_ &of->subject);
    pwk_server *server;
    pwk_status status = pwp_attach_server(aTHX_ channel, &server, error);
    of->count = 0;
    if (status != PWK_OK) return status;
    if (of->max == 1) {
        status = pwk_server_recv(server, until, pwp_scratch(aTHX), of->requests, error);
        of->count = status == PWK_OK;
        return status;
    }
    return pwk_server_recv_many(server, of->max, until, 0, pwp_scratch(aTHX), of->requests,
                                &of->count, error);
}

/* The same without waiting; PWK_WOULD_BLOCK if no request waits. */
static pwk_status take_now(pTHX_ taking *of, pwk_error *error) {
    pwp_channel *channel = of->subject.channel;
    pwk_server *server;
    pwk_status status = pwp_attach_server(aTHX_ channel, &server, error);
    of->count = 0;
    if (status != PWK_OK) return status;
    if (of->max == 1) {
        status = pwk_server_try_recv(server, pwp_scratch(aTHX), of->requests, error);
        of->count = status == PWK_OK;
        return status;
    }
    status = pwk_server_drain(server, of->max, pwp_scratch(aTHX), of->requests, &of->count, error);
    return status == PWK_OK && !of->count ? PWK_WOULD_BLOCK : status;
}

static SV *data_of(pTHX_ const taking *of, size_t i, int role) {
    const pwk_request *request = &of->requests[i];
    const pwk_buffer *scratch = pwp_scratch(aTHX);
    pwp_payload payload = PWP_NO_PAYLOAD;
    payload.bytes.data = request->len ? (const char *)scratch->data + request->offset : NULL;
    payload.bytes.len = request->len;
    payload.flags = request->flags;
    return pwp_payload_sv(aTHX_ &payload, role);
}

/* Nothing was taken: the empty list. */
static I32 nothing(pTHX_ pwk_status status, pwk_error *error) {
    pwp_name_failure(status, error, "reqrep recv");
    pwp_failed(aTHX_ error);
    return 0;
}

/* One request and its id. */
static I32 give_one(pTHX_ I32 ax, taking *of, int role, pwk_status status, pwk_error *error) {
    SV *data;
    if (status != PWK_OK) return nothing(aTHX_ status, error);
    data = data_of(aTHX_ of, 0, role);
    pwp_scratch_done(aTHX);
    return pwp_give_two(aTHX_ ax, data, pwp_id_sv(aTHX_ of->requests[0].ticket));
}

/* All that were taken, and those that wait behind them, up to `max` in all. */
static I32 give_all(pTHX_ I32 ax, taking *of, int role, UV max, pwk_status status, pwk_error *error) {
    I32 given = 0;
    /* As many as can be in the segment at a time: others may send as fast as this takes. */
    if (max > of->subject.channel->geometry.slots) max = of->subject.channel->geometry.slots;
    if (status != PWK_OK) return nothing(aTHX_ status, error);
    for (;;) {
        bool was_full = of->count == of->max;
        dSP;
        EXTEND(SP, given + 2 * (SSize_t)of->count);
        PERL_UNUSED_VAR(sp);
        for (size_t i = 0; i < of->count; i++) {
            ST(given) = data_of(aTHX_ of, i, role);
            ST(given + 1) = pwp_id_sv(aTHX_ of->requests[i].ticket);
            given += 2;
        }
        if (!was_full || (UV)given / 2 >= max) break;
        of->max = max - (UV)given / 2 < MOST_AT_ONCE ? max - (UV)given / 2 : MOST_AT_ONCE;
        /* A failure comes again with the next call. */
        if (take_now(aTHX_ of, error) != PWK_OK) break;
    }
    pwp_scratch_done(aTHX);
    return given;
}

I32 pwp_server_recv(pTHX_ I32 ax, SV *self, int role) {
    taking of;
    pwk_error error;
    of.subject = pwp_subject_of(aTHX_ self, role);
    of.max = 1;
    return give_one(aTHX_ ax, &of, role, take_now(aTHX_ &of, &error), &error);
}

I32 pwp_server_recv_wait(pTHX_ I32 ax, SV *self, int role, SV *seconds) {
    taking of;
    pwk_deadline deadline;
    pwk_error error;
    pwk_status status;
    deadline = pwp_deadline(aTHX_ seconds);
    of.subject = pwp_subject_of(aTHX_ self, role);
    of.max = 1;
    status = pwp_wait(aTHX_ &of.subject.self, take_slice, &of, deadline, &error);
    return give_one(aTHX_ ax, &of, role, status, &error);
}

I32 pwp_server_drain(pTHX_ I32 ax, SV *self, int role, SV *max) {
    taking of;
    pwk_error error;
    UV wanted;
    if (max) max = pwp_number(aTHX_ max);
    wanted = max && SvOK(max) ? pwp_count(aTHX_ max) : UV_MAX;
    of.subject = pwp_subject_of(aTHX_ self, role);
    of.max = wanted < MOST_AT_ONCE ? wanted : MOST_AT_ONCE;
    if (!wanted) return 0;
    return give_all(aTHX_ ax, &of, role, wanted, take_now(aTHX_ &of, &error), &error);
}

I32 pwp_server_recv_wait_multi(pTHX_ I32 ax, SV *self, int role, SV *max, SV *seconds) {
    taking of;
    pwk_deadline deadline;
    pwk_error error;
    pwk_status status;
    UV wanted;
    wanted = pwp_count(aTHX_ max);
    deadline = pwp_deadline(aTHX_ seconds);
    of.subject = pwp_subject_of(aTHX_ self, role);
    of.max = wanted < MOST_AT_ONCE ? wanted : MOST_AT_ONCE;
    if (!wanted) return 0;
    status = pwp_wait(aTHX_ &of.subject.self, take_slice, &of, deadline, &error);
    return give_all(aTHX_ ax, &of, role, wanted, status, &error);
}

/* ---------------------------------------------------------------- answering them */

/* An answer to a request that was taken. */
typedef struct answer {
    pwp_subject subject;
    uint64_t ticket;
    pwp_payload payload;
    pwp_blobs *blobs;
    bool wanted;
} answer;

/* A server that has taken nothing has nothing to answer. */
static pwk_status stale(pwk_error *error) {
    memset(error, 0, sizeof *error);
    return PWK_STALE;
}

/*
 * Does something with a request. In a forked child, one that its parent has taken is made its own
 * first: for servers that fork for each request.
 */
static pwk_status answered(answer *of, pwk_status (*act)(pwk_server *, answer *, pwk_error *),
                           pwk_error *error) {
    pwk_server *server = of->subject.channel->server;
    pwk_status status = server ? act(server, of, error) : stale(error);
    if (status == PWK_STALE && server && pwk_server_adopt(server, of->ticket, NULL) == PWK_OK) {
        status = act(server, of, error);
    }
    return status;
}

/* Whether the client still waited; false, with $!, of a request that is not there. */
static I32 answer_result(pTHX_ I32 ax, const answer *of, pwk_status status,
                         pwk_error *error) {
    if (status != PWK_OK) {
        pwp_name_failure(status, error, "reqrep reply");
        pwp_failed(aTHX_ error);
    }
    return pwp_give(aTHX_ ax, boolSV(status == PWK_OK && of->wanted));
}

static pwk_status reply_until(pwk_server *server, answer *of, pwk_deadline until,
                              pwk_error *error) {
    pwk_message reply = pwp_message_of(&of->payload, of->blobs);
    return pwk_server_reply_blobs(server, of->ticket, &reply, until, &of->wanted, error);
}

static pwk_status try_reply(pwk_server *server, answer *of, pwk_error *error) {
    return reply_until(server, of, 0, error);
}

static pwk_status reply_slice(pTHX_ void *arguments, pwk_deadline until, pwk_error *error) {
    answer *of = arguments;
    return reply_until(pwp_channel_again(aTHX_ &of->subject)->server, of, until, error);
}

static pwk_status is_wanted(pwk_server *server, answer *of, pwk_error *error) {
    return pwk_server_is_wanted(server, of->ticket, &of->wanted, error);
}

static pwk_status fail(pwk_server *server, answer *of, pwk_error *error) {
    return pwk_server_fail(server, of->ticket, of->payload.bytes.data, of->payload.bytes.len,
                           &of->wanted, error);
}

/* For how long a client may leave a part, unless the program says it. */
#define PART_MS 10000

/* Whether the client has to take a part first. */
static bool is_unfinished(pwk_status status) {
    return status == PWK_TIMED_OUT || status == PWK_INTERRUPTED;
}

/* A program that mixes up its ids gets an exception, as from the original. */
static void must_be_possible(pTHX_ const answer *of) {
    const pwk_geometry *geometry = &of->subject.channel->geometry;
    const char *class = of->subject.kind->name;
    if (pwk_ticket_slot(of->ticket) >= geometry->slots) {
        croak("%s: invalid slot index", pwp_called(aTHX_ class));
    }
    if (of->payload.bytes.len > geometry->reply_bytes) {
        croak("%s: response too long (max %u bytes)", pwp_called(aTHX_ class),
              (unsigned)geometry->reply_bytes);
    }
}

/* The arguments of reply and part. */
static answer answer_of(pTHX_ SV *self, int role, SV *id, SV *data, const pwp_with *with,
                        pwk_deadline *deadline) {
    answer of;
    of.ticket = pwp_count(aTHX_ id);
    data = pwp_fetch(aTHX_ data);
    *deadline = pwp_deadline(aTHX_ with->seconds);
    of.blobs = pwp_blobs_given(aTHX_ with->blobs);
    of.payload = pwp_payload_of(aTHX_ data, role);
    of.subject = pwp_subject_of(aTHX_ self, role);
    must_be_possible(aTHX_ &of);
    return of;
}

/*
 * Answers once the client has taken the part before. One that never does must not hold a server
 * whose program gives no time for ever: then the request is given up. Otherwise nothing was given,
 * and it is still to be answered.
 */
static I32 wait_for_client(pTHX_ I32 ax, pwp_attempt slice, answer *of, pwk_deadline deadline,
                           bool has_time) {
    pwk_error error;
    pwk_status status;
    /* A signal handler may change what the bytes are lent from. */
    pwp_payload_keep(aTHX_ &of->payload);
    if (!has_time) deadline = pwk_in_ms(PART_MS);
    status = pwp_wait(aTHX_ &of->subject.self, slice, of, deadline, &error);
    if (status != PWK_TIMED_OUT) return answer_result(aTHX_ ax, of, status, &error);
    if (has_time) {
        pwp_failed(aTHX_ &error);
        return pwp_give(aTHX_ ax, &PL_sv_undef);
    }
    pwk_server_fail(of->subject.channel->server, of->ticket, NULL, 0, NULL, NULL);
    return answer_result(aTHX_ ax, of, status, &error);
}

I32 pwp_server_reply(pTHX_ I32 ax, SV *self, int role, SV *id, SV *data, const pwp_with *with) {
    pwk_deadline deadline;
    answer of = answer_of(aTHX_ self, role, id, data, with, &deadline);
    pwk_error error;
    pwk_status status = answered(&of, try_reply, &error);
    if (!is_unfinished(status)) return answer_result(aTHX_ ax, &of, status, &error);
    return wait_for_client(aTHX_ ax, reply_slice, &of, deadline, with->seconds != NULL);
}

static pwk_status part_slice(pTHX_ void *arguments, pwk_deadline until, pwk_error *error) {
    answer *of = arguments;
    pwk_message part = pwp_message_of(&of->payload, of->blobs);
    pwk_server *server = pwp_channel_again(aTHX_ &of->subject)->server;
    return pwk_server_part_blobs(server, of->ticket, &part, until, &of->wanted, error);
}

I32 pwp_server_part(pTHX_ I32 ax, SV *self, int role, SV *id, SV *data, const pwp_with *with) {
    pwk_deadline deadline;
    answer of = answer_of(aTHX_ self, role, id, data, with, &deadline);
    pwk_error error;
    /* Whether the id is that of an open request; and a child makes it its own. */
    pwk_status status = answered(&of, is_wanted, &error);
    if (status != PWK_OK || !of.wanted) return answer_result(aTHX_ ax, &of, status, &error);
    return wait_for_client(aTHX_ ax, part_slice, &of, deadline, with->seconds != NULL);
}

I32 pwp_server_fail(pTHX_ I32 ax, SV *self, int role, SV *id, SV *reason) {
    answer of;
    pwk_error error;
    pwk_status status;
    of.ticket = pwp_count(aTHX_ id);
    of.payload = PWP_NO_PAYLOAD;
    if (reason) {
        /* A reason is text, and goes as UTF-8. */
        reason = sv_mortalcopy(pwp_fetch(aTHX_ reason));
        of.payload.bytes.data = SvPVutf8(reason, of.payload.bytes.len);
    }
    /* Clients of integers get no reason. */
    if (PWP_IS_INT(role)) of.payload.bytes.len = 0;
    of.subject = pwp_subject_of(aTHX_ self, role);
    status = answered(&of, fail, &error);
    return answer_result(aTHX_ ax, &of, status, &error);
}

/* ---------------------------------------------------------------- the rest */

static answer about(pTHX_ SV *self, int role, SV *id) {
    answer of;
    of.ticket = pwp_count(aTHX_ id);
    of.payload = PWP_NO_PAYLOAD;
    of.subject = pwp_subject_of(aTHX_ self, role);
    return of;
}

static pwk_status take_blobs(pwk_server *server, answer *of, pwk_error *error) {
    return pwk_server_blobs(server, of->ticket, &of->blobs->received, error);
}

I32 pwp_server_blobs(pTHX_ I32 ax, SV *self, int role, SV *id) {
    answer of = about(aTHX_ self, role, id);
    pwk_blobs *received;
    pwk_error error;
    pwk_status status;
    dSP;
    of.blobs = pwp_blobs_new(aTHX);
    received = &of.blobs->received;
    status = answered(&of, take_blobs, &error);
    if (status != PWK_OK) {
        pwp_name_failure(status, &error, "reqrep blobs");
        pwp_throw(aTHX_ &error);
    }
    if (GIMME_V == G_SCALAR) return pwp_give(aTHX_ ax, sv_2mortal(newSVuv(received->count)));
    EXTEND(SP, (SSize_t)received->count);
    PERL_UNUSED_VAR(sp);
    for (size_t i = 0; i < received->count; i++) ST(i) = pwp_blobs_next(aTHX_ of.blobs, i);
    return (I32)received->count;
}

I32 pwp_server_is_wanted(pTHX_ I32 ax, SV *self, int role, SV *id) {
    answer of = about(aTHX_ self, role, id);
    pwk_error error;
    pwk_status status = answered(&of, is_wanted, &error);
    return answer_result(aTHX_ ax, &of, status, &error);
}

SV *pwp_server_redeliveries(pTHX_ SV *self, int role, SV *id) {
    answer of = about(aTHX_ self, role, id);
    pwk_server *server = of.subject.channel->server;
    uint16_t times = 0;
    pwk_error error;
    pwk_status status = server ? pwk_server_redeliveries(server, of.ticket, &times, &error)
                              : stale(&error);
    if (status == PWK_OK) return sv_2mortal(newSVuv(times));
    pwp_name_failure(status, &error, "reqrep redeliveries");
    pwp_failed(aTHX_ &error);
    return &PL_sv_undef;
}

I32 pwp_server_adopt(pTHX_ I32 ax, SV *self, int role, SV *id) {
    answer of = about(aTHX_ self, role, id);
    pwk_server *server = of.subject.channel->server;
    pwk_error error;
    pwk_status status = server ? pwk_server_adopt(server, of.ticket, &error) : stale(&error);
    of.wanted = true;
    return answer_result(aTHX_ ax, &of, status, &error);
}

/* The server of the object, which attaches if it must; or an exception. */
static pwk_server *attached(pTHX_ SV *self, int role) {
    pwp_channel *channel = pwp_state(aTHX_ self, &pwp_reqrep_classes[role]);
    pwk_server *server;
    pwk_error error;
    if (pwp_attach_server(aTHX_ channel, &server, &error) != PWK_OK) pwp_throw(aTHX_ &error);
    return server;
}

void pwp_server_clear(pTHX_ SV *self, int role) {
    pwk_error error;
    if (pwk_server_clear(attached(aTHX_ self, role), NULL, &error) != PWK_OK) pwp_throw(aTHX_ &error);
}

void pwp_server_stop(pTHX_ SV *self, int role) {
    pwk_server_stop(attached(aTHX_ self, role));
}

static pwk_status flush_slice(pTHX_ void *arguments, pwk_deadline until, pwk_error *error) {
    answer *of = arguments;
    pwk_server *server = pwp_channel_again(aTHX_ &of->subject)->server;
    return pwk_server_flush(server, of->ticket, until, &of->wanted, error);
}

I32 pwp_server_flush(pTHX_ I32 ax, SV *self, SV *id, SV *seconds) {
    pwk_deadline deadline;
    pwp_with with = {seconds, NULL};
    answer of = answer_of(aTHX_ self, PWP_SERVER, id, &PL_sv_no, &with, &deadline);
    pwk_error error;
    pwk_status status = answered(&of, is_wanted, &error);
    if (status != PWK_OK || !of.wanted) return answer_result(aTHX_ ax, &of, status, &error);
    return wait_for_client(aTHX_ ax, flush_slice, &of, deadline, seconds != NULL);
}
