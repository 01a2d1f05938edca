/*
 * Writing. The library takes a message at once and whole, and the bytes that the pipe has no space for are
 * pending; a writer that blocks then waits until none are. So a signal handler that
 * dies leaves the message pending, and one that writes does so behind it.
 */
#include "atomic.h"

#define MIXED_BURST \
    "A burst cannot hold the bytes 0x0E and 0x0F, or begin with 0x10, in mixed_data_mode; " \
    "write_message takes them"

/* Croaks with the original's words where it has any. */
static void fail(pTHX_ const pwk_error *error) {
    if (error->kind != PWK_CLOSED) pwp_throw(aTHX_ error);
    pwp_failed(aTHX_ error);
    if (error->os == EBADF) croak("Disconnected pipe: %s", Strerror(EBADF));
    croak("Disconnected pipe");
}

typedef struct flushing {
    SV *self;
    bool waits;
} flushing;

/* Bytes that were pending when the end was cut are lost. One call reports that. */
static pwk_status is_cut(pwp_atomic *end, pwk_error *error) {
    if (!end->is_unsaid) return PWK_OK;
    end->is_unsaid = FALSE;
    Zero(error, 1, pwk_error);
    error->kind = PWK_CLOSED;
    error->os = EBADF;
    strcpy(error->op, "atomic flush");
    return PWK_CLOSED;
}

static pwk_status flush_attempt(pTHX_ void *arguments, pwk_deadline until, pwk_error *error) {
    const flushing *flushing = arguments;
    pwp_atomic *end = pwp_atomic_still(aTHX_ flushing->self);
    /* A signal handler that has closed it has written all that was pending. */
    if (!end->writer) return is_cut(end, error);
    if (!flushing->waits && !end->write_blocks) return pwk_atomic_writer_try_flush(end->writer, error);
    return pwk_atomic_writer_flush(end->writer, until, error);
}

/* PWK_OK or PWK_WOULD_BLOCK; or it is lost, and why. */
static pwk_status flush(pTHX_ SV *self, bool waits, pwk_error *error) {
    flushing flushing = {self, waits};
    pwp_atomic *end = pwp_atomic_still(aTHX_ self);
    pwk_status status;
    if (!end->writer) return is_cut(end, error);
    if (!pwk_atomic_writer_pending(end->writer)) return PWK_OK;
    status = pwk_atomic_writer_try_flush(end->writer, error);
    if (status != PWK_WOULD_BLOCK || !(waits || end->write_blocks)) return status;
    return pwp_wait(aTHX_ &flushing.self, flush_attempt, &flushing, PWK_NEVER, error);
}

void pwp_atomic_flush(pTHX_ SV *self, bool waits) {
    pwk_error error;
    pwk_status status = flush(aTHX_ self, waits, &error);
    if (status != PWK_OK && status != PWK_WOULD_BLOCK) fail(aTHX_ &error);
}

bool pwp_atomic_finish(pTHX_ SV *self) {
    pwk_error error;
    if (flush(aTHX_ self, TRUE, &error) == PWK_OK) return TRUE;
    pwp_failed(aTHX_ &error);
    return FALSE;
}

/*
 * The state behind the object, and the bytes, which Perl code that reads the dictionary cannot
 * change.
 */
static pwp_atomic *taking(pTHX_ SV **self, SV *payload, const char *name, pwk_bytes *bytes) {
    if (pwp_atomic_state(aTHX_ *self)->zstd_is_due) payload = sv_mortalcopy(payload);
    *bytes = pwp_bytes(aTHX_ payload, name);
    return pwp_atomic_writing(aTHX_ self);
}

/* Waits until all is written, if the writer blocks. */
static void wait_for(pTHX_ SV *self, pwp_atomic *end) {
    end->may_pend = pwk_atomic_writer_pending(end->writer) > 0;
    if (end->write_blocks && end->may_pend) pwp_atomic_flush(aTHX_ self, FALSE);
}

uint32_t pwp_atomic_write_message(pTHX_ SV *self, SV *message) {
    pwk_bytes bytes;
    pwk_error error;
    uint32_t parts;
    pwp_atomic *end = taking(aTHX_ &self, message, "write_message", &bytes);
    if (pwk_atomic_writer_try_send_message(end->writer, bytes.data, bytes.len, &parts, &error) != PWK_OK) {
        fail(aTHX_ &error);
    }
    wait_for(aTHX_ self, end);
    return parts;
}

bool pwp_atomic_write_burst(pTHX_ SV *self, SV *burst) {
    pwk_bytes bytes;
    pwk_error error;
    pwp_atomic *end = taking(aTHX_ &self, burst, "write_burst", &bytes);
    switch (pwk_atomic_writer_try_burst(end->writer, bytes.data, bytes.len, &error)) {
        case PWK_OK: break;
        case PWK_TOO_LONG: pwp_failed(aTHX_ &error); return FALSE;
        case PWK_INVALID: pwp_failed(aTHX_ &error); croak(MIXED_BURST);
        default: fail(aTHX_ &error);
    }
    wait_for(aTHX_ self, end);
    return TRUE;
}

bool pwp_atomic_fits_in_burst(pTHX_ SV *self, SV *burst, size_t *in_pipe) {
    pwk_bytes bytes;
    pwk_error error;
    bool fits;
    pwp_atomic *end = taking(aTHX_ &self, burst, "fits_in_burst", &bytes);
    pwk_status status =
        pwk_atomic_writer_fits_in_burst(end->writer, bytes.data, bytes.len, &fits, in_pipe, &error);
    if (status != PWK_OK) fail(aTHX_ &error);
    return fits;
}

/* Whether Perl code will run that could change messages: a dictionary's, or a warning's. */
static bool may_change(pTHX_ SV *self, SV *const *messages, size_t count) {
    size_t i;
    if (pwp_atomic_state(aTHX_ self)->zstd_is_due) return true;
    for (i = 0; i < count; i++) {
        if (!SvOK(messages[i])) return true;
    }
    return false;
}

void pwp_atomic_send_many(pTHX_ SV *self, SV **messages, size_t count) {
    bool copies = may_change(aTHX_ self, messages, count);
    pwk_bytes *bytes;
    pwk_error error;
    pwp_atomic *end;
    size_t i;
    Newx(bytes, count, pwk_bytes);
    SAVEFREEPV(bytes);
    for (i = 0; copies && i < count; i++) messages[i] = sv_mortalcopy(messages[i]);
    /* None is sent if one of them cannot be. */
    for (i = 0; i < count; i++) bytes[i] = pwp_bytes(aTHX_ messages[i], "send_many");
    end = pwp_atomic_writing(aTHX_ &self);
    end->may_pend = TRUE;
    for (i = 0; i < count; i++) {
        if (pwk_atomic_writer_enqueue(end->writer, bytes[i].data, bytes[i].len, NULL, &error) != PWK_OK) {
            fail(aTHX_ &error);
        }
    }
    pwp_atomic_flush(aTHX_ self, FALSE);
}
