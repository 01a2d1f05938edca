/* Replies that are received part by part. */
#include "reqrep.h"

/* The state behind a stream. Threads do not share it. */
typedef struct stream_state {
    pwk_stream *stream;
    /* The client leaves when its streams have gone: it gives up all of its calls then. */
    pwp_channel *channel;
    /* How many seconds each part is waited for, unless `next` says it; NULL is for ever. */
    SV *seconds;
    bool has_ended;
} stream_state;

static void release(pTHX_ void *state) {
    stream_state *stream = state;
    pwk_stream_free(stream->stream);
    pwp_channel_release(aTHX_ stream->channel);
    SvREFCNT_dec(stream->seconds);
    Safefree(stream);
}

/* A new thread gets none: two that take turns with one would tear it. */
static void *share(pTHX_ void *state) {
    PERL_UNUSED_VAR(state);
    return NULL;
}

const pwp_class pwp_stream_class = {PWP_VTABLE, "Pipework::ReqRep::Stream", release, share};

typedef struct opening {
    pwp_subject subject;
    pwp_payload payload;
    pwp_blobs *blobs;
    pwk_deadline whole;
    pwk_stream *stream;
} opening;

static pwk_status open_slice(pTHX_ void *arguments, pwk_deadline until, pwk_error *error) {
    opening *of = arguments;
    pwp_channel *channel = pwp_channel_again(aTHX_ &of->subject);
    pwk_message request = pwp_message_of(&of->payload, of->blobs);
    pwk_client *client;
    pwk_status status = pwp_attach_client(aTHX_ channel, &client, error);
    if (status != PWK_OK) return status;
    /* A long request goes in parts, and starts again from the first after a failure. */
    if (request.len > channel->geometry.request_bytes) until = of->whole;
    return pwk_client_stream_blobs(client, &request, until, &of->stream, error);
}

SV *pwp_client_stream(pTHX_ SV *self, int role, SV *data, const pwp_with *with) {
    opening of;
    pwk_error error;
    stream_state *state;
    SV *object, *reference, *seconds = with->seconds;
    data = pwp_fetch(aTHX_ data);
    if (seconds) seconds = pwp_number(aTHX_ seconds);
    if (seconds && SvOK(seconds)) seconds = sv_2mortal(newSVnv(pwp_real(aTHX_ seconds)));
    of.whole = pwp_deadline(aTHX_ seconds);
    of.blobs = pwp_blobs_given(aTHX_ with->blobs);
    of.payload = pwp_payload_of(aTHX_ data, role);
    of.subject = pwp_subject_of(aTHX_ self, role);
    pwp_payload_keep(aTHX_ &of.payload);
    if (pwp_wait(aTHX_ &of.subject.self, open_slice, &of, of.whole, &error) != PWK_OK) {
        pwp_throw(aTHX_ &error);
    }
    Newxz(state, 1, stream_state);
    state->stream = of.stream;
    state->channel = pwp_channel_hold(of.subject.channel);
    if (seconds && SvOK(seconds)) state->seconds = SvREFCNT_inc_simple_NN(seconds);
    object = newSV(0);
    reference = sv_2mortal(newRV_noinc(object));
    pwp_attach(aTHX_ object, &pwp_stream_class, state);
    return sv_bless(reference, gv_stashpv(pwp_stream_class.name, GV_ADD));
}

typedef struct next_part {
    SV *self;
    stream_state *state;
    pwp_payload payload;
    /* Takes the blobs of the part; NULL if only its data is wanted. */
    pwp_blobs *received;
} next_part;

static pwk_status next_slice(pTHX_ void *arguments, pwk_deadline until, pwk_error *error) {
    next_part *of = arguments;
    pwk_buffer *scratch = pwp_scratch(aTHX);
    pwk_status status;
    if (pwp_find(aTHX_ of->self, &pwp_stream_class) != of->state) {
        croak("Attempted to use a destroyed %s object",
              pwp_called(aTHX_ pwp_stream_class.name));
    }
    scratch->len = 0;
    status = pwk_stream_next_part_blobs(of->state->stream, until, scratch, &of->payload.flags,
                                        of->received ? &of->received->received : NULL, error);
    of->payload.bytes.data = scratch->data;
    of->payload.bytes.len = scratch->len;
    return status;
}

I32 pwp_stream_next(pTHX_ I32 ax, SV *self, SV *seconds, bool as_message) {
    next_part of;
    pwk_deadline deadline;
    pwk_status status;
    pwk_error error;
    SV *part = &PL_sv_undef;
    if (seconds) deadline = pwp_deadline(aTHX_ seconds);
    of.self = self;
    of.state = pwp_state(aTHX_ self, &pwp_stream_class);
    if (!seconds) deadline = pwp_deadline(aTHX_ of.state->seconds);
    of.payload = PWP_NO_PAYLOAD;
    of.received = as_message ? pwp_blobs_new(aTHX) : NULL;
    if (of.state->has_ended) return pwp_give(aTHX_ ax, part);
    status = pwp_wait(aTHX_ &of.self, next_slice, &of, deadline, &error);
    of.state->has_ended = status != PWK_OK && status != PWK_TIMED_OUT;
    if (status == PWK_OK) {
        part = pwp_payload_sv(aTHX_ &of.payload, PWP_CLIENT);
        if (of.received) part = pwp_message_sv(aTHX_ part, of.received);
    } else if (status != PWK_CLOSED) {
        pwk_buffer *scratch = pwp_scratch(aTHX);
        pwp_throw_because(aTHX_ &error, scratch->data, status == PWK_FAILED ? scratch->len : 0);
    }
    pwp_scratch_done(aTHX);
    return pwp_give(aTHX_ ax, part);
}
