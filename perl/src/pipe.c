/* The ends of Pipework::Pipe: made, shared, closed. */
#include "pipe.h"

/* The state of an object: its end, or NULL once it is closed. */
typedef struct {
    pwp_pipe_end *end;
} copy;

/* ---------------------------------------------------------------- lives */

static void unhold(pwp_pipe_end *end) {
    if (__atomic_sub_fetch(&end->holds, 1, __ATOMIC_ACQ_REL) > 0) return;
    PerlMemShared_free(end->held);
    PerlMemShared_free(end);
}

static copy *hold(pTHX_ pwp_pipe_end *end) {
    copy *of;
    Newx(of, 1, copy);
    __atomic_add_fetch(&end->copies, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&end->holds, 1, __ATOMIC_RELAXED);
    of->end = end;
    return of;
}

/* Takes the end from the object, which holds it no more. True if that was its last copy. */
static bool let_go(copy *of) {
    pwp_pipe_end *end = of->end;
    of->end = NULL;
    return __atomic_sub_fetch(&end->copies, 1, __ATOMIC_ACQ_REL) == 0;
}

static void release(pTHX_ void *state) {
    copy *of = state;
    pwp_pipe_end *end = of->end;
    if (end) {
        if (let_go(of)) {
            pwk_pipe_reader_free(end->reader);
            pwk_pipe_writer_free(end->writer);
            end->reader = NULL;
            end->writer = NULL;
        }
        unhold(end);
    }
    Safefree(of);
}

static void *share(pTHX_ void *state) {
    pwp_pipe_end *end = ((copy *)state)->end;
    copy *of;
    if (end) return hold(aTHX_ end);
    Newxz(of, 1, copy);
    return of;
}

const pwp_class pwp_pipe = {PWP_VTABLE, "Pipework::Pipe", release, share};

static pwp_pipe_end *new_end(pwk_pipe_reader *reader, pwk_pipe_writer *writer) {
    pwp_pipe_end *end = PerlMemShared_calloc(1, sizeof *end);
    if (!end) croak("Out of memory");
    end->reader = reader;
    end->writer = writer;
    end->reads = reader != NULL;
    return end;
}

void pwp_pipe_make(pTHX_ SV *reader, SV *writer, SV *capacity) {
    pwk_pipe_reader *r;
    pwk_pipe_writer *w;
    pwk_error error;
    IV size = PWK_PIPE_CAPACITY;
    if (capacity) capacity = pwp_number(aTHX_ capacity);
    if (capacity && SvOK(capacity)) size = pwp_integer(aTHX_ capacity);
    if (!SvROK(reader) || !SvROK(writer)) croak("Expected two handles");
    if (size <= 0) croak("%s: a pipe holds at least one byte", pwp_called(aTHX_ "Pipework::Pipe"));
    if (pwk_pipe_pair((size_t)size, &r, &w, &error) != PWK_OK) pwp_throw(aTHX_ &error);
    pwp_attach(aTHX_ SvRV(reader), &pwp_pipe, hold(aTHX_ new_end(r, NULL)));
    pwp_attach(aTHX_ SvRV(writer), &pwp_pipe, hold(aTHX_ new_end(NULL, w)));
}

/* ---------------------------------------------------------------- use */

static void unuse(pTHX_ void *of) {
    pwp_pipe_end *end = of;
    if (--end->depth == 0) __atomic_store_n(&end->user, NULL, __ATOMIC_RELEASE);
    unhold(end);
}

/* Whichever end it is. */
static pwp_pipe_end *use(pTHX_ SV *self) {
    copy *of = pwp_state(aTHX_ self, &pwp_pipe);
    pwp_pipe_end *end = of->end;
    void *nobody = NULL;
    void *me;
#ifdef USE_ITHREADS
    me = aTHX;
#else
    me = end;
#endif
    if (!end) {
        errno = EBADF;
        return NULL;
    }
    if (!__atomic_compare_exchange_n(&end->user, &nobody, me, false, __ATOMIC_ACQUIRE,
                                     __ATOMIC_RELAXED)
        && nobody != me) {
        croak("Another thread is using this end of the pipe");
    }
    end->depth++;
    __atomic_add_fetch(&end->holds, 1, __ATOMIC_RELAXED);
    SAVEDESTRUCTOR_X(unuse, end);
    /* Another thread may have given it up until now. */
    if (end->reader || end->writer) return end;
    errno = EBADF;
    return NULL;
}

pwp_pipe_end *pwp_pipe_use(pTHX_ SV *self, bool reads) {
    copy *of = pwp_state(aTHX_ self, &pwp_pipe);
    if (of->end && of->end->reads != reads) {
        croak("This is the %s end of the pipe", reads ? "writing" : "reading");
    }
    return use(aTHX_ self);
}

void pwp_pipe_drop(pwp_pipe_end *end, size_t len) {
    end->at += len;
    end->taken += len;
    if (end->at == end->len) end->at = end->len = 0;
}

static void describe(pwk_error *error, pwk_status kind, int os, const char *op) {
    Zero(error, 1, pwk_error);
    error->kind = kind;
    error->os = os;
    my_strlcpy(error->op, op, sizeof error->op);
}

bool pwp_pipe_is_open(pTHX_ SV *self, const pwp_pipe_end *end, pwk_error *error) {
    copy *of = pwp_find(aTHX_ self, &pwp_pipe);
    if (of && of->end == end && (end->reader || end->writer)) return true;
    describe(error, PWK_INVALID, EBADF, end->reads ? "pipe recv" : "pipe send");
    return false;
}

/* ---------------------------------------------------------------- close */

bool pwp_pipe_close(pTHX_ SV *self) {
    copy *of = pwp_state(aTHX_ self, &pwp_pipe);
    pwp_pipe_end *end = of->end;
    pwk_status status = PWK_OK;
    pwk_error error;
    if (!end) {
        errno = EBADF;
        return false;
    }
    /* Another thread may be using the end, but then this is not the last copy. */
    if (let_go(of) && (end->reader || end->writer)) {
        if (end->reads) {
            if (pwk_pipe_reader_failure(end->reader, NULL, 0) > 0) {
                status = PWK_FAILED;
                describe(&error, status, 0, "pipe close");
                pwp_pipe_failed(aTHX_ end, &error, 0);
            }
            pwk_pipe_reader_free(end->reader);
        } else {
            status = pwk_pipe_writer_finish(end->writer, &error);
            if (status != PWK_OK) pwp_failed(aTHX_ &error);
        }
        end->reader = NULL;
        end->writer = NULL;
    }
    unhold(end);
    return status == PWK_OK;
}

bool pwp_pipe_close_with_error(pTHX_ SV *self, SV *reason) {
    pwp_pipe_end *end;
    SV *text = sv_2mortal(newSVsv(pwp_fetch(aTHX_ reason)));
    const char *because = SvOK(text) ? SvPVutf8_nolen(text) : NULL;
    copy *of = pwp_state(aTHX_ self, &pwp_pipe);
    end = use(aTHX_ self);
    if (!end) return false;
    pwk_pipe_reader_close_with_error(end->reader, because);
    pwk_pipe_writer_close_with_error(end->writer, because);
    end->reader = NULL;
    end->writer = NULL;
    (void)let_go(of);
    unhold(end);
    return true;
}

/* ---------------------------------------------------------------- questions */

/* Why the other end gave up, as the bytes that it said; NULL if it did not. */
static SV *reason_of(pTHX_ const pwp_pipe_end *end) {
    SV *text;
    size_t len = end->reads ? pwk_pipe_reader_failure(end->reader, NULL, 0)
                            : pwk_pipe_writer_failure(end->writer, NULL, 0);
    if (len == 0) return NULL;
    text = sv_2mortal(newSV(len + 1));
    if (end->reads) {
        pwk_pipe_reader_failure(end->reader, SvPVX(text), len + 1);
    } else {
        pwk_pipe_writer_failure(end->writer, SvPVX(text), len + 1);
    }
    SvPOK_on(text);
    SvCUR_set(text, len);
    return text;
}

SV *pwp_pipe_reason(pTHX_ SV *self) {
    pwp_pipe_end *end = use(aTHX_ self);
    SV *text = end ? reason_of(aTHX_ end) : NULL;
    if (text) sv_utf8_decode(text);
    return text;
}

void pwp_pipe_failed(pTHX_ const pwp_pipe_end *end, pwk_error *error, uint64_t done) {
    SV *reason = NULL;
    error->done = done;
    sv_setuv(get_sv("Pipework::Pipe::done", GV_ADD), done);
    if (error->kind == PWK_FAILED && (end->reader || end->writer)) reason = reason_of(aTHX_ end);
    if (reason) pwp_failed_because(aTHX_ error, SvPVX(reason), SvCUR(reason));
    else pwp_failed(aTHX_ error);
}

IV pwp_pipe_ask(pTHX_ SV *self, pwp_pipe_fact fact) {
    pwp_pipe_end *end = use(aTHX_ self);
    if (!end) return -1;
    switch (fact) {
        case PWP_PIPE_BUFFERED:
            return (IV)(end->len - end->at
                        + (end->reads ? pwk_pipe_reader_len(end->reader)
                                      : pwk_pipe_writer_len(end->writer)));
        case PWP_PIPE_CAPACITY:
            return (IV)(end->reads ? pwk_pipe_reader_capacity(end->reader)
                                   : pwk_pipe_writer_capacity(end->writer));
        default:
            return end->reads ? pwk_pipe_reader_is_closed(end->reader)
                              : pwk_pipe_writer_is_closed(end->writer);
    }
}
