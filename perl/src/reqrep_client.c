/* The calling end: a call at once, or in two halves. */
#include "reqrep.h"

/* ---------------------------------------------------------------- one half of a call, in slices */

typedef struct half {
    pwp_subject subject;
    /* The request, and then the reply. */
    pwp_payload payload;
    uint64_t ticket;
    /* Of the whole, where the first half must not be cut into slices; else 0. */
    pwk_deadline whole;
    /* Blobs of the request; NULL if it has none. */
    pwp_blobs *blobs;
    /* Takes the blobs of the reply; NULL if only its data is wanted. */
    pwp_blobs *received;
} half;

/* Whether a request is longer than a slot: it goes in parts, and starts again after a failure. */
static bool is_long(const half *call) {
    return call->payload.bytes.len > call->subject.channel->geometry.request_bytes;
}

/* Sends at once, or PWK_WOULD_BLOCK. */
static pwk_status try_send(pTHX_ half *call, pwk_error *error) {
    pwk_client *client;
    pwk_message request = pwp_message_of(&call->payload, call->blobs);
    pwk_status status = pwp_attach_client(aTHX_ call->subject.channel, &client, error);
    if (status != PWK_OK) return status;
    return pwk_client_try_send_blobs(client, &request, &call->ticket, error);
}

static pwk_status send_slice(pTHX_ void *arguments, pwk_deadline until, pwk_error *error) {
    half *call = arguments;
    pwk_message request = pwp_message_of(&call->payload, call->blobs);
    pwk_client *client;
    pwp_channel *channel = pwp_channel_again(aTHX_ &call->subject);
    pwk_status status = pwp_attach_client(aTHX_ channel, &client, error);
    if (status != PWK_OK) return status;
    if (is_long(call)) until = call->whole;
    return pwk_client_send_blobs(client, &request, until, &call->ticket, error);
}

/* Sends, and waits for a slot if it must. */
static pwk_status send_until(pTHX_ half *call, pwk_deadline deadline, pwk_error *error) {
    pwk_status status = is_long(call) ? PWK_WOULD_BLOCK : try_send(aTHX_ call, error);
    if (status != PWK_WOULD_BLOCK) return status;
    /* A signal handler may change what the bytes are lent from. */
    pwp_payload_keep(aTHX_ &call->payload);
    call->whole = deadline;
    return pwp_wait(aTHX_ &call->subject.self, send_slice, call, deadline, error);
}

/* No peer of ours replies with an integer of another size. */
static pwk_status must_be_integer(pwk_status status, size_t len, pwk_error *error) {
    if (status != PWK_OK || len == PWP_INT_BYTES) return status;
    Zero(error, 1, pwk_error);
    strcpy(error->op, "reqrep recv");
    return error->kind = PWK_CORRUPT;
}

/* The reply is in the scratch memory. */
static pwk_status arrived(pTHX_ half *call, pwk_status status, pwk_error *error) {
    const pwk_buffer *scratch = pwp_scratch(aTHX);
    call->payload.bytes.data = scratch->data;
    call->payload.bytes.len = scratch->len;
    return call->payload.is_number ? must_be_integer(status, scratch->len, error) : status;
}

/*
 * An integer without blobs goes to `number`. Everything else goes to the scratch memory, and so does
 * the reason after PWK_FAILED.
 */
static pwk_status receive(pTHX_ half *call, pwk_client *client, pwk_deadline until, pwk_error *error) {
    pwk_buffer *scratch = pwp_scratch(aTHX);
    pwp_payload *payload = &call->payload;
    pwk_status status;
    scratch->len = 0;
    payload->flags = 0;
    if (call->received) {
        status = pwk_client_recv_blobs(client, call->ticket, until, scratch, &payload->flags,
                                       &call->received->received, error);
        return arrived(aTHX_ call, status, error);
    }
    if (payload->is_number) {
        payload->bytes.data = &payload->number;
        status = pwk_client_recv_into(client, call->ticket, until, &payload->number, PWP_INT_BYTES,
                                      &payload->bytes.len, NULL, error);
        return must_be_integer(status, payload->bytes.len, error);
    }
    status = pwk_client_recv_message(client, call->ticket, until, scratch, &payload->flags, error);
    return arrived(aTHX_ call, status, error);
}

static pwk_status recv_slice(pTHX_ void *arguments, pwk_deadline until, pwk_error *error) {
    half *call = arguments;
    return receive(aTHX_ call, pwp_channel_again(aTHX_ &call->subject)->client, until, error);
}

/* ---------------------------------------------------------------- how calls end */

/* The reply, or undef and $!; `throws`: or an exception. */
static SV *reply_of(pTHX_ const half *call, int role, pwk_status status, pwk_error *error,
                    bool throws) {
    SV *reply = &PL_sv_undef;
    if (status == PWK_OK) {
        reply = pwp_payload_sv(aTHX_ &call->payload, role);
        if (call->received) reply = pwp_message_sv(aTHX_ reply, call->received);
    } else {
        pwk_buffer *scratch = pwp_scratch(aTHX);
        size_t reason = status == PWK_FAILED ? scratch->len : 0;
        pwp_name_failure(status, error, "reqrep recv");
        if (throws) pwp_throw_because(aTHX_ error, scratch->data, reason);
        pwp_failed_because(aTHX_ error, scratch->data, reason);
    }
    pwp_scratch_done(aTHX);
    return reply;
}

static I32 ended(pTHX_ I32 ax, const half *call, int role, pwk_status status, pwk_error *error,
                 bool throws) {
    return pwp_give(aTHX_ ax, reply_of(aTHX_ call, role, status, error, throws));
}

/* The arguments of req, send and the like. */
static half call_of(pTHX_ SV *self, int role, SV *data, const pwp_with *with, pwk_deadline *deadline) {
    half call;
    data = pwp_fetch(aTHX_ data);
    *deadline = pwp_deadline(aTHX_ with->seconds);
    call.blobs = pwp_blobs_given(aTHX_ with->blobs);
    call.received = NULL;
    call.payload = pwp_payload_of(aTHX_ data, role);
    call.subject = pwp_subject_of(aTHX_ self, role);
    return call;
}

static void must_fit(pTHX_ const half *call) {
    if (is_long(call)) {
        croak("%s: request too long (max %u bytes)", pwp_called(aTHX_ call->subject.kind->name),
              (unsigned)call->subject.channel->geometry.request_bytes);
    }
}

/* A call whose wait a signal handler may leave; then the call is cancelled. */
typedef struct guard {
    pwp_channel *channel;
    uint64_t ticket;
} guard;

/* Ends a call that no thread waits for any more. Its reply may have come at the last moment. */
static pwk_status give_up(pTHX_ half *call, pwk_client *client, pwk_error *error) {
    bool cancelled = false;
    if (pwk_client_cancel(client, call->ticket, &cancelled, NULL) != PWK_OK || cancelled) {
        return error->kind;
    }
    return receive(aTHX_ call, client, 0, error);
}

static void leave(pTHX_ void *state) {
    guard *left = state;
    if (left->ticket) {
        half call;
        pwk_error error = {PWK_INTERRUPTED, 0, 0, ""};
        Zero(&call, 1, half);
        call.subject.channel = left->channel;
        call.ticket = left->ticket;
        (void)give_up(aTHX_ &call, left->channel->client, &error);
    }
    pwp_channel_release(aTHX_ left->channel);
}

static pwk_status recv_guarded(pTHX_ half *call, pwk_deadline deadline, pwk_error *error) {
    guard held;
    pwk_status status;
    held.channel = pwp_channel_hold(call->subject.channel);
    held.ticket = call->ticket;
    ENTER;
    SAVEDESTRUCTOR_X(leave, &held);
    status = pwp_wait(aTHX_ &call->subject.self, recv_slice, call, deadline, error);
    held.ticket = 0;
    LEAVE;
    return status;
}

static bool is_half(const pwk_error *error) {
    return strcmp(error->op, "reqrep send") == 0 || strcmp(error->op, "reqrep recv") == 0;
}

I32 pwp_client_req(pTHX_ I32 ax, SV *self, int role, SV *data, const pwp_with *with, enum pwp_way way) {
    pwk_deadline deadline;
    half call = call_of(aTHX_ self, role, data, with, &deadline);
    pwk_status status;
    pwk_error error;
    if (way == PWP_AS_ORIGINAL) must_fit(aTHX_ &call);
    if (way == PWP_MESSAGE) call.received = pwp_blobs_new(aTHX);
    status = send_until(aTHX_ &call, deadline, &error);
    if (status == PWK_OK) {
        status = recv_guarded(aTHX_ &call, deadline, &error);
        if (status != PWK_OK) {
            status = give_up(aTHX_ &call, call.subject.channel->client, &error);
        }
    } else {
        pwp_scratch(aTHX)->len = 0;
    }
    /* Both halves are one operation here. */
    if (status != PWK_OK && is_half(&error)) my_strlcpy(error.op, "reqrep call", sizeof error.op);
    return ended(aTHX_ ax, &call, role, status, &error, way != PWP_AS_ORIGINAL);
}

/* ---------------------------------------------------------------- sending */

static I32 sent(pTHX_ I32 ax, const half *call, pwk_status status, pwk_error *error, bool rings) {
    if (status == PWK_OK) {
        if (rings) pwp_channel_ring(call->subject.channel, pwp_request_bell);
        return pwp_give(aTHX_ ax, pwp_id_sv(aTHX_ call->ticket));
    }
    pwp_name_failure(status, error, "reqrep send");
    pwp_failed(aTHX_ error);
    return pwp_give(aTHX_ ax, &PL_sv_undef);
}

I32 pwp_client_send(pTHX_ I32 ax, SV *self, int role, SV *data, const pwp_with *with, bool rings) {
    pwk_deadline never;
    half call = call_of(aTHX_ self, role, data, with, &never);
    pwk_error error;
    must_fit(aTHX_ &call);
    return sent(aTHX_ ax, &call, try_send(aTHX_ &call, &error), &error, rings);
}

I32 pwp_client_send_wait(pTHX_ I32 ax, SV *self, int role, SV *data, const pwp_with *with, bool rings) {
    pwk_deadline deadline;
    half call = call_of(aTHX_ self, role, data, with, &deadline);
    pwk_error error;
    must_fit(aTHX_ &call);
    return sent(aTHX_ ax, &call, send_until(aTHX_ &call, deadline, &error), &error, rings);
}

/* ---------------------------------------------------------------- receiving */

/* For receiving the reply of call `id`, or of any call if it is 0. */
static half waiting_for(pTHX_ SV *self, int role, uint64_t id, bool as_message) {
    half call;
    Zero(&call, 1, half);
    call.payload.is_number = PWP_IS_INT(role);
    call.ticket = id;
    call.received = as_message ? pwp_blobs_new(aTHX) : NULL;
    call.subject = pwp_subject_of(aTHX_ self, role);
    return call;
}

/* PWK_STALE if no call can have that id, since nothing was sent. */
static pwk_status begin(pTHX_ const half *call, int role, pwk_error *error) {
    if (pwk_ticket_slot(call->ticket) >= call->subject.channel->geometry.slots) {
        croak("%s: invalid slot index", pwp_class_called(aTHX_ role));
    }
    if (call->subject.channel->client) return PWK_OK;
    Zero(error, 1, pwk_error);
    return PWK_STALE;
}

I32 pwp_client_get(pTHX_ I32 ax, SV *self, int role, SV *id) {
    half call = waiting_for(aTHX_ self, role, pwp_count(aTHX_ id), false);
    pwk_error error;
    pwk_buffer *scratch = pwp_scratch(aTHX);
    pwk_status status = begin(aTHX_ &call, role, &error);
    scratch->len = 0;
    if (status == PWK_OK && call.payload.is_number) {
        status = receive(aTHX_ &call, call.subject.channel->client, 0, &error);
        if (status == PWK_TIMED_OUT) status = PWK_WOULD_BLOCK;
    } else if (status == PWK_OK) {
        status = pwk_client_try_recv_message(call.subject.channel->client, call.ticket, scratch,
                                             &call.payload.flags, &error);
        status = arrived(aTHX_ &call, status, &error);
    }
    return ended(aTHX_ ax, &call, role, status, &error, false);
}

I32 pwp_client_get_wait(pTHX_ I32 ax, SV *self, int role, SV *id, SV *seconds, bool as_message) {
    pwk_error error;
    uint64_t ticket = pwp_count(aTHX_ id);
    pwk_deadline deadline = pwp_deadline(aTHX_ seconds);
    half call = waiting_for(aTHX_ self, role, ticket, as_message);
    pwk_status status = begin(aTHX_ &call, role, &error);
    if (status == PWK_OK) {
        status = pwp_wait(aTHX_ &call.subject.self, recv_slice, &call, deadline, &error);
    } else {
        pwp_scratch(aTHX)->len = 0;
    }
    return ended(aTHX_ ax, &call, role, status, &error, false);
}

/* The status of a call that has ended, or of the wait if the ticket is 0. */
static pwk_status any_slice(pTHX_ void *arguments, pwk_deadline until, pwk_error *error) {
    half *call = arguments;
    pwk_buffer *scratch = pwp_scratch(aTHX);
    pwk_client *client;
    pwp_channel *channel = pwp_channel_again(aTHX_ &call->subject);
    pwk_status status = pwp_attach_client(aTHX_ channel, &client, error);
    if (status != PWK_OK) return status;
    status = pwk_client_recv_any_blobs(client, until, &call->ticket, scratch, &call->payload.flags,
                                       call->received ? &call->received->received : NULL, error);
    return arrived(aTHX_ call, status, error);
}

I32 pwp_client_recv_any(pTHX_ I32 ax, SV *self, int role, SV *seconds, bool as_message) {
    pwk_deadline deadline = pwp_deadline(aTHX_ seconds);
    half call = waiting_for(aTHX_ self, role, 0, as_message);
    pwk_error error;
    pwk_status status;
    SV *reply;
    status = pwp_wait(aTHX_ &call.subject.self, any_slice, &call, deadline, &error);
    if (!call.ticket) {
        if (status != PWK_OK) pwp_failed(aTHX_ &error);
        return 0;
    }
    reply = reply_of(aTHX_ &call, role, status, &error, false);
    return pwp_give_two(aTHX_ ax, reply, pwp_id_sv(aTHX_ call.ticket));
}

/* ---------------------------------------------------------------- the rest */

void pwp_client_cancel(pTHX_ SV *self, int role, SV *id) {
    uint64_t ticket = pwp_count(aTHX_ id);
    pwp_channel *channel = pwp_state(aTHX_ self, &pwp_reqrep_classes[role]);
    if (channel->client) pwk_client_cancel(channel->client, ticket, NULL, NULL);
}

bool pwp_client_forget(pTHX_ SV *self, int role, SV *id) {
    uint64_t ticket = pwp_count(aTHX_ id);
    pwp_channel *channel = pwp_state(aTHX_ self, &pwp_reqrep_classes[role]);
    return channel->client && pwk_client_forget(channel->client, ticket, NULL) == PWK_OK;
}
