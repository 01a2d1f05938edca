/*
 * Writing. The library takes a message at once and whole, and what the pipe has no space for is
 * pending; a writer that blocks then waits in slices until nothing is. So a signal handler that
 * dies leaves the message pending, and one that writes does so behind it.
 */
#include "atomic.h"

#define MIXED_BURST \
    "A burst cannot hold the bytes 0x0E and 0x0F, or begin with 0x10, in mixed_data_mode; " \
    "write_message takes them"

/* Croaks with the original's words where it has any. */
static void fail(pTHX_ const pw_error *error) {
    if (error->kind != PW_CLOSED) pwp_throw(aTHX_ error);
    pwp_failed(aTHX_ error);
    if (error->os == EBADF) croak("Disconnected pipe: %s", Strerror(EBADF));
    croak("Disconnected pipe");
}

typedef struct flushing {
    SV *self;
    bool waits;
} flushing;

/* What was pending when the end was cut is lost, which is told once. */
static pw_status is_cut(pwp_atomic *end, pw_error *error) {
    if (!end->is_unsaid) return PW_OK;
    end->is_unsaid = FALSE;
    Zero(error, 1, pw_error);
    error->kind = PW_CLOSED;
    error->os = EBADF;
    strcpy(error->op, "atomic flush");
    return PW_CLOSED;
}

static pw_status flush_slice(pTHX_ void *arguments, pw_deadline until, pw_error *error) {
    const flushing *flushing = arguments;
    pwp_atomic *end = pwp_atomic_still(aTHX_ flushing->self);
    /* A signal handler that has closed it has written all that was pending. */
    if (!end->writer) return is_cut(end, error);
    if (!flushing->waits && !end->write_blocks) return pw_writer_try_flush(end->writer, error);
    return pw_writer_flush(end->writer, until, error);
}

/* PW_OK or PW_WOULD_BLOCK; or it is lost, and why. */
static pw_status flush(pTHX_ SV *self, bool waits, pw_error *error) {
    flushing flushing = {self, waits};
    pwp_atomic *end = pwp_atomic_still(aTHX_ self);
    pw_status status;
    if (!end->writer) return is_cut(end, error);
    if (!pw_writer_pending(end->writer)) return PW_OK;
    status = pw_writer_try_flush(end->writer, error);
    if (status != PW_WOULD_BLOCK || !(waits || end->write_blocks)) return status;
    return pwp_wait(aTHX_ &flushing.self, flush_slice, &flushing, PW_NEVER, error);
}

void pwp_atomic_flush(pTHX_ SV *self, bool waits) {
    pw_error error;
    pw_status status = flush(aTHX_ self, waits, &error);
    if (status != PW_OK && status != PW_WOULD_BLOCK) fail(aTHX_ &error);
}

bool pwp_atomic_finish(pTHX_ SV *self) {
    pw_error error;
    if (flush(aTHX_ self, TRUE, &error) == PW_OK) return TRUE;
    pwp_failed(aTHX_ &error);
    return FALSE;
}

/*
 * What stands behind the object, and the bytes. Perl code that reads the dictionary cannot change
 * those.
 */
static pwp_atomic *taking(pTHX_ SV **self, SV *payload, const char *name, pw_bytes *bytes) {
    if (pwp_atomic_state(aTHX_ *self)->zstd_is_due) payload = sv_mortalcopy(payload);
    *bytes = pwp_bytes(aTHX_ payload, name);
    return pwp_atomic_writing(aTHX_ self);
}

/* Waits until all is written, if the writer blocks. */
static void wait_for(pTHX_ SV *self, pwp_atomic *end) {
    end->may_pend = pw_writer_pending(end->writer) > 0;
    if (end->write_blocks && end->may_pend) pwp_atomic_flush(aTHX_ self, FALSE);
}

uint32_t pwp_atomic_write_message(pTHX_ SV *self, SV *message) {
    pw_bytes bytes;
    pw_error error;
    uint32_t parts;
    pwp_atomic *end = taking(aTHX_ &self, message, "write_message", &bytes);
    if (pw_writer_try_send(end->writer, bytes.data, bytes.len, &parts, &error) != PW_OK) {
        fail(aTHX_ &error);
    }
    wait_for(aTHX_ self, end);
    return parts;
}

bool pwp_atomic_write_burst(pTHX_ SV *self, SV *burst) {
    pw_bytes bytes;
    pw_error error;
    pwp_atomic *end = taking(aTHX_ &self, burst, "write_burst", &bytes);
    switch (pw_writer_try_burst(end->writer, bytes.data, bytes.len, &error)) {
        case PW_OK: break;
        case PW_TOO_LONG: pwp_failed(aTHX_ &error); return FALSE;
        case PW_INVALID: pwp_failed(aTHX_ &error); croak(MIXED_BURST);
        default: fail(aTHX_ &error);
    }
    wait_for(aTHX_ self, end);
    return TRUE;
}

bool pwp_atomic_fits_in_burst(pTHX_ SV *self, SV *burst, size_t *in_pipe) {
    pw_bytes bytes;
    pw_error error;
    bool fits;
    pwp_atomic *end = taking(aTHX_ &self, burst, "fits_in_burst", &bytes);
    pw_status status =
        pw_writer_fits_in_burst(end->writer, bytes.data, bytes.len, &fits, in_pipe, &error);
    if (status != PW_OK) fail(aTHX_ &error);
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
    pw_bytes *bytes;
    pw_error error;
    pwp_atomic *end;
    size_t i;
    Newx(bytes, count, pw_bytes);
    SAVEFREEPV(bytes);
    for (i = 0; copies && i < count; i++) messages[i] = sv_mortalcopy(messages[i]);
    /* None is sent if one of them cannot be. */
    for (i = 0; i < count; i++) bytes[i] = pwp_bytes(aTHX_ messages[i], "send_many");
    end = pwp_atomic_writing(aTHX_ &self);
    end->may_pend = TRUE;
    for (i = 0; i < count; i++) {
        if (pw_writer_enqueue(end->writer, bytes[i].data, bytes[i].len, NULL, &error) != PW_OK) {
            fail(aTHX_ &error);
        }
    }
    pwp_atomic_flush(aTHX_ self, FALSE);
}
