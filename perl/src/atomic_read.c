/*
 * Reading: each call looks for an item that has come, and only then waits. A lost message is reported
 * in the original's way, or in ours.
 */
#include "atomic.h"

/* A time that has passed. */
#define NOW 0

/* How long a peek waits before it looks for a line that has begun. */
#define PEEK_MS 250

/* Which of four functions: with a deadline or without waiting, all items or messages alone. */
static pwk_status take(pwp_reading *reading, pwk_atomic_reader *reader, bool waits, pwk_deadline until,
                       pwk_error *error) {
    pwk_item *item = &reading->item;
    if (reading->any_item) {
        if (waits) return pwk_atomic_reader_next_item(reader, until, item, error);
        return pwk_atomic_reader_try_next_item(reader, item, error);
    }
    if (waits) return pwk_atomic_reader_recv(reader, until, item, error);
    return pwk_atomic_reader_try_recv(reader, item, error);
}

static bool has_begun_a_line(pwk_atomic_reader *reader) {
    pwk_buffer text = PWK_BUFFER;
    bool has_text = pwk_atomic_reader_peek(reader, &text, NULL) == PWK_OK && text.len > 0;
    pwk_buffer_free(&text);
    return has_text;
}

static pwk_status item_attempt(pTHX_ void *arguments, pwk_deadline until, pwk_error *error) {
    pwp_reading *reading = arguments;
    pwp_atomic *end = pwp_atomic_still_reading(aTHX_ reading->self);
    bool waits = reading->waits || end->read_blocks;
    pwk_deadline look = PWK_NEVER;
    pwk_status status;
    /* A signal handler has closed it. */
    if (!end->reader) return PWK_CLOSED;
    /* The library waits for the end of a line that has begun. A peek looks at it before that. */
    if (reading->peeks) look = pwk_in_ms(PEEK_MS);
    status = take(reading, end->reader, waits, look < until ? look : until, error);
    end->is_idle = status != PWK_OK;
    if (status != PWK_TIMED_OUT || !reading->peeks) return status;
    if (has_begun_a_line(end->reader)) return PWK_WOULD_BLOCK;
    return look < until ? PWK_INTERRUPTED : PWK_TIMED_OUT;
}

static pwk_status next(pTHX_ pwp_reading *reading, pwk_error *error) {
    pwp_atomic *end = pwp_atomic_reading(aTHX_ &reading->self);
    pwk_status status = take(reading, end->reader, FALSE, NOW, error);
    end->is_idle = status != PWK_OK;
    if (status != PWK_WOULD_BLOCK || !(reading->waits || end->read_blocks)) return status;
    if (reading->peeks && has_begun_a_line(end->reader)) return status;
    return pwp_wait(aTHX_ &reading->self, item_attempt, reading, reading->deadline, error);
}

/* Whether the last call reported a loss; then the report is in the reading. */
static bool is_loss(pwp_reading *reading, pwk_atomic_reader *reader, pwk_status status) {
    if (status == PWK_OK) return reading->item.kind == PWK_ITEM_TORN;
    return !reading->any_item && reader && pwk_atomic_reader_torn(reader, &reading->item);
}

/* ---------------------------------------------------------------- as the original does it */

static void tell(pTHX_ SV *self, SV *report) {
    dSP;
    ENTER;
    SAVETMPS;
    PUSHMARK(SP);
    EXTEND(SP, 2);
    PUSHs(self);
    PUSHs(report);
    PUTBACK;
    call_pv("Pipework::Atomic::_lost", G_VOID | G_DISCARD);
    FREETMPS;
    LEAVE;
}

/* Whether a frame without a checksum is refused here for its dictionary. */
static bool needs_unchecked(pTHX_ SV *self) {
    HV *of = (HV *)SvRV(self);
    SV **accepts = hv_fetchs(of, "accept_unchecked", 0);
    SV **bytes = hv_fetchs(of, "compression_dictionary", 0);
    SV **file = hv_fetchs(of, "compression_dictionary_file", 0);
    return ((bytes && SvOK(*bytes)) || (file && SvOK(*file))) && !(accepts && SvTRUE(*accepts));
}

static void lose(pTHX_ pwp_reading *reading, pwp_atomic *end) {
    const pwk_item *torn = &reading->item;
    pwk_error error = {PWK_TORN, 0, 0, "atomic recv"};
    SV *from = pwp_atomic_key(aTHX_ torn->writer);
    end->torn = *torn;
    error.kind = torn->torn;
    pwp_failed(aTHX_ &error);
    if (torn->torn == PWK_CORRUPT && end->is_compressed) {
        croak("zstd decompression failed (writer %" SVf ", %u parts)%s", SVfARG(from), torn->parts,
              needs_unchecked(aTHX_ reading->self)
                  ? ": with a dictionary, accept_unchecked => 1 reads messages of Atomic::Pipe"
                  : "");
    }
    if (torn->torn == PWK_INCOMPATIBLE) {
        croak("A message of writer %" SVf " is compressed, and compression is not set here",
              SVfARG(from));
    }
    if (torn->torn == PWK_TOO_LONG && torn->limit == PWK_LIMIT_MAX_MESSAGE) {
        croak("A message of writer %" SVf " is longer than max_message", SVfARG(from));
    }
    end->has_lost = TRUE;
    reading->self = pwp_pin(aTHX_ reading->self);
    tell(aTHX_ reading->self, pwp_atomic_report(aTHX_ torn));
}

static void invalid(pTHX_ const char *state) { croak("Pipe is in an invalid state '%s'", state); }

static void end_of(pTHX_ const pwp_atomic *end) {
    if (end->is_mixed && end->has_lost) invalid(aTHX_ "Incomplete message received before EOF");
}

/* A stream that makes no sense from here on. */
static void senseless(pTHX_ pwp_atomic *end, const pwk_error *error) {
    size_t len;
    if (error->kind != PWK_CORRUPT || !end->is_mixed) pwp_throw(aTHX_ error);
    pwp_failed(aTHX_ error);
    if (pwk_atomic_reader_read_ahead(end->reader, NOW, &len, NULL) == PWK_OK && len == 0) {
        invalid(aTHX_ "Incomplete burst data received before end of pipe");
    }
    invalid(aTHX_ SvPVX(pwp_error_text(aTHX_ error)));
}

bool pwp_atomic_next(pTHX_ pwp_reading *reading) {
    for (;;) {
        pwk_error error;
        pwk_status status = next(aTHX_ reading, &error);
        pwp_atomic *end = pwp_atomic_state(aTHX_ reading->self);
        if (status == PWK_WOULD_BLOCK) return FALSE;
        if (status == PWK_CLOSED) {
            end_of(aTHX_ end);
            return FALSE;
        }
        if (!is_loss(reading, end->reader, status)) {
            if (status != PWK_OK) senseless(aTHX_ end, &error);
            return TRUE;
        }
        lose(aTHX_ reading, end);
        if (!pwp_atomic_still(aTHX_ reading->self)->reader) return FALSE;
    }
}

/* ---------------------------------------------------------------- as recv and next_item do it */

void pwp_atomic_must_next(pTHX_ pwp_reading *reading) {
    pwk_error error;
    pwk_status status = next(aTHX_ reading, &error);
    pwp_atomic *end = pwp_atomic_state(aTHX_ reading->self);
    SV *exception;
    if (status == PWK_CLOSED && !end->reader) {
        Zero(&error, 1, pwk_error);
        error.kind = PWK_CLOSED;
        strcpy(error.op, "atomic recv");
    }
    if (is_loss(reading, end->reader, status)) end->torn = reading->item;
    if (status == PWK_OK) return;
    exception = pwp_exception(aTHX_ &error);
    if (is_loss(reading, end->reader, status)) {
        (void)hv_stores((HV *)SvRV(exception), "torn",
                        SvREFCNT_inc(pwp_atomic_report(aTHX_ &reading->item)));
    }
    croak_sv(exception);
}

/* ---------------------------------------------------------------- questions */

SV *pwp_atomic_peek(pTHX_ SV *self) {
    pwp_atomic *end = pwp_atomic_still(aTHX_ self);
    pwk_buffer text = PWK_BUFFER;
    SV *line = NULL;
    if (end->reader && pwk_atomic_reader_peek(end->reader, &text, NULL) == PWK_OK && text.len > 0) {
        line = newSVpvn_flags(text.data, text.len, SVs_TEMP);
    }
    pwk_buffer_free(&text);
    return line;
}

/* A call of eof or fill_buffer, and its result. */
typedef struct asking {
    SV *self;
    bool is_eof;
    size_t len;
} asking;

/* Whether the status means that nothing is there now. */
static bool is_nothing(pwk_status status) {
    return status == PWK_TIMED_OUT || status == PWK_WOULD_BLOCK || status == PWK_INTERRUPTED;
}

static pwk_status eof_attempt(pTHX_ void *arguments, pwk_deadline until, pwk_error *error) {
    asking *asking = arguments;
    pwp_atomic *end = pwp_atomic_still_reading(aTHX_ asking->self);
    asking->is_eof = !end->reader;
    if (!end->reader) return PWK_OK;
    if (end->read_blocks) return pwk_atomic_reader_wait_eof(end->reader, until, &asking->is_eof, error);
    return PWK_WOULD_BLOCK;
}

bool pwp_atomic_eof(pTHX_ SV *self) {
    asking asking = {self, FALSE, 0};
    pwk_error error;
    pwp_atomic *end = pwp_atomic_reading(aTHX_ &asking.self);
    pwk_status status = pwk_atomic_reader_wait_eof(end->reader, NOW, &asking.is_eof, &error);
    end->is_idle = status == PWK_TIMED_OUT;
    if (status == PWK_TIMED_OUT && end->read_blocks) {
        status = pwp_wait(aTHX_ &asking.self, eof_attempt, &asking, PWK_NEVER, &error);
        end = pwp_atomic_still(aTHX_ asking.self);
    }
    if (is_nothing(status)) return FALSE;
    if (status != PWK_OK) senseless(aTHX_ end, &error);
    if (asking.is_eof) end_of(aTHX_ end);
    return asking.is_eof;
}

static pwk_status fill_attempt(pTHX_ void *arguments, pwk_deadline until, pwk_error *error) {
    asking *asking = arguments;
    pwp_atomic *end = pwp_atomic_still_reading(aTHX_ asking->self);
    asking->len = 0;
    if (!end->reader) return PWK_OK;
    if (end->read_blocks) return pwk_atomic_reader_read_ahead(end->reader, until, &asking->len, error);
    return PWK_WOULD_BLOCK;
}

size_t pwp_atomic_fill(pTHX_ SV *self) {
    asking asking = {self, FALSE, 0};
    pwk_error error;
    pwp_atomic *end = pwp_atomic_reading(aTHX_ &asking.self);
    pwk_status status = pwk_atomic_reader_read_ahead(end->reader, NOW, &asking.len, &error);
    if (status == PWK_TIMED_OUT && end->read_blocks) {
        status = pwp_wait(aTHX_ &asking.self, fill_attempt, &asking, PWK_NEVER, &error);
    }
    if (status == PWK_OK) return asking.len;
    if (!is_nothing(status)) pwp_throw(aTHX_ &error);
    return 0;
}

/* ---------------------------------------------------------------- items as Perl values */

SV *pwp_atomic_data(pTHX_ const pwk_item *item) { return pwp_string(aTHX_ item->data, item->len); }

SV *pwp_atomic_compressed(pTHX_ const pwk_item *item) {
    return item->compressed ? pwp_string(aTHX_ item->compressed, item->compressed_len) : NULL;
}

SV *pwp_atomic_type(pTHX_ const pwk_item *item) {
    switch (item->kind) {
        case PWK_ITEM_LINE: return newSVpvs_flags("line", SVs_TEMP);
        case PWK_ITEM_BURST: return newSVpvs_flags("burst", SVs_TEMP);
        case PWK_ITEM_MESSAGE: return newSVpvs_flags("message", SVs_TEMP);
        default: return newSVpvs_flags("torn", SVs_TEMP);
    }
}

SV *pwp_atomic_key(pTHX_ pwk_key key) {
    return sv_2mortal(newSVpvf("%d:%d", (int)key.pid, (int)key.tid));
}

/* The names are those of Pipework::Error. */
static const char *kind_of(pwk_status torn) {
    switch (torn) {
        case PWK_TOO_LONG: return "TooLong";
        case PWK_CORRUPT: return "Corrupt";
        case PWK_INCOMPATIBLE: return "Incompatible";
        default: return "Torn";
    }
}

/* Puts a mortal into a hash. */
static void put(pTHX_ HV *fields, const char *name, SV *value) {
    (void)hv_store(fields, name, (I32)strlen(name), SvREFCNT_inc_simple_NN(value), 0);
}

static void put_number(pTHX_ HV *fields, const char *name, IV number) {
    (void)hv_store(fields, name, (I32)strlen(name), newSViv(number), 0);
}

static void put_data(pTHX_ HV *fields, const char *name, const pwk_item *item) {
    put(aTHX_ fields, name, pwp_atomic_data(aTHX_ item));
    if (item->compressed) put(aTHX_ fields, "compressed", pwp_atomic_compressed(aTHX_ item));
}

static bool has_writer(const pwk_item *item) { return item->writer.pid != 0; }

SV *pwp_atomic_debug(pTHX_ const pwk_item *item) {
    HV *fields = newHV();
    SV *found = sv_2mortal(newRV_noinc((SV *)fields));
    AV *ids = newAV();
    uint32_t id = item->parts;
    (void)hv_stores(fields, "parts", newRV_noinc((SV *)ids));
    while (id-- > 0) av_push(ids, newSVuv(id));
    put_number(aTHX_ fields, "pid", item->writer.pid);
    put_number(aTHX_ fields, "tid", item->writer.tid);
    put_data(aTHX_ fields, "message", item);
    return found;
}

SV *pwp_atomic_report(pTHX_ const pwk_item *torn) {
    HV *fields = newHV();
    SV *report = sv_2mortal(newRV_noinc((SV *)fields));
    if (has_writer(torn)) put(aTHX_ fields, "writer", pwp_atomic_key(aTHX_ torn->writer));
    (void)hv_stores(fields, "kind", newSVpv(kind_of(torn->torn), 0));
    put_number(aTHX_ fields, "parts", torn->parts);
    put_number(aTHX_ fields, "bytes", (IV)torn->torn_bytes);
    return report;
}

SV *pwp_atomic_item(pTHX_ const pwk_item *item) {
    bool is_torn = item->kind == PWK_ITEM_TORN;
    SV *found = is_torn ? pwp_atomic_report(aTHX_ item) : sv_2mortal(newRV_noinc((SV *)newHV()));
    HV *fields = (HV *)SvRV(found);
    put(aTHX_ fields, "type", pwp_atomic_type(aTHX_ item));
    if (is_torn) return found;
    put_data(aTHX_ fields, "data", item);
    if (has_writer(item)) {
        put(aTHX_ fields, "writer", pwp_atomic_key(aTHX_ item->writer));
        put_number(aTHX_ fields, "parts", item->parts);
    }
    return found;
}
