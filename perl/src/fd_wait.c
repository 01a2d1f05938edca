/* Functions of Pipework::FD that wait: poll, readline and slurp. */
#include "fd.h"

#include <poll.h>

/* ---------------------------------------------------------------- poll */

/* So many descriptors need no memory of their own. */
#define FEW 16

IV pwp_fd_poll(pTHX_ SV *list, SV *seconds) {
    struct pollfd few[FEW];
    struct pollfd *fds = NULL;
    size_t len = 0, count = 0, ready = 0;
    NV wanted;
    pwk_deadline deadline;
    pwk_status status;
    pwk_error error;
    SvGETMAGIC(list);
    if (SvPOK(list)) {
        pwk_bytes bytes = pwp_bytes(aTHX_ list, "poll");
        pwp_must_be_writable(aTHX_ list);
        len = bytes.len;
        count = len / sizeof *fds;
        /* The kernel wants it where a struct may lie, and a handler may change the list. */
        if (len <= sizeof few) {
            fds = few;
            if (len) memcpy(fds, bytes.data, len);
        } else {
            fds = (struct pollfd *)SvPVX(newSVpvn_flags(bytes.data, len, SVs_TEMP));
        }
    }
    wanted = pwp_seconds(aTHX_ seconds);
    /* Where nothing is to be waited for, no clock is read. */
    if (count && !PL_sig_pending) {
        int at_once = poll(fds, count, 0);
        if (at_once > 0 || (at_once == 0 && wanted == 0)) {
            pwp_assign(aTHX_ list, fds, len);
            return at_once;
        }
    }
    deadline = pwp_deadline_in(wanted);
    /* Before the wait, for a time of 0 asks nothing. */
    status = PL_sig_pending ? PWK_INTERRUPTED : pwk_fd_poll(fds, count, deadline, &ready, &error);
    /* The program may wait for a handler, which changes its next question. */
    if (status == PWK_INTERRUPTED) {
        PERL_ASYNC_CHECK();
        errno = EINTR;
        return PWP_FD_UNDEF;
    }
    if (status != PWK_OK) {
        pwp_failed(aTHX_ &error);
        return PWP_FD_UNDEF;
    }
    if (fds) pwp_assign(aTHX_ list, fds, len);
    return (IV)ready;
}

/* ---------------------------------------------------------------- readline */

typedef struct {
    int fd;
    size_t max;
    pwk_buffer *data;
} slurp_arguments;

static pwk_status slurp(pTHX_ void *arguments, pwk_deadline until, pwk_error *error) {
    slurp_arguments *of = arguments;
    size_t held = of->data->len;
    return pwk_fd_slurp(of->fd, of->max > held ? of->max - held : 0, until, of->data, NULL, error);
}

static void free_buffer(pTHX_ void *buffer) {
    pwk_buffer_free(buffer);
    Safefree(buffer);
}

/* Everything up to the end of file. A handler that dies leaves the scope: the buffer is freed. */
static pwk_status slurp_all(pTHX_ int fd, size_t max, pwk_deadline deadline, pwk_buffer **data,
                            pwk_error *error) {
    slurp_arguments arguments = {fd, max, NULL};
    Newxz(*data, 1, pwk_buffer);
    SAVEDESTRUCTOR_X(free_buffer, *data);
    arguments.data = *data;
    return pwp_wait(aTHX_ NULL, slurp, &arguments, deadline, error);
}

SV *pwp_fd_slurp(pTHX_ SV *fd, SV *max, SV *seconds) {
    pwk_error error;
    pwk_status status;
    pwk_buffer *data;
    pwk_deadline deadline;
    size_t most = SIZE_MAX;
    SV *result = NULL;
    int number;
    if (!pwp_fd_number(aTHX_ fd, "slurp", &number)) return NULL;
    if (max) {
        max = pwp_number(aTHX_ max);
        if (SvOK(max)) most = pwp_count(aTHX_ max);
    }
    deadline = pwp_deadline(aTHX_ seconds);
    ENTER;
    status = slurp_all(aTHX_ number, most, deadline, &data, &error);
    if (status == PWK_OK) {
        result = pwp_string(aTHX_ data->data, data->len);
        PWP_FD_FROM_OUTSIDE(result);
    } else {
        (void)pwp_fd_ended(aTHX_ status, &error, data->len);
    }
    LEAVE;
    return result;
}

typedef struct {
    int fd;
    SV *into;
    size_t wanted, got;
} record_arguments;

static pwk_status read_record(pTHX_ void *arguments, pwk_deadline until, pwk_error *error) {
    record_arguments *of = arguments;
    size_t got = 0;
    char *into = SvPVX(of->into) + of->got;
    pwk_status status =
        pwk_fd_read_full(of->fd, into, of->wanted - of->got, until, &got, error);
    of->got += status == PWK_OK ? got : (size_t)error->done;
    return status;
}

/* The size of a record as `$/` says, 0 if it says everything. Croaks if it means lines. */
static size_t record_size(pTHX) {
    SV *separator = get_sv("/", GV_ADD);
    IV size;
    SvGETMAGIC(separator);
    if (!SvOK(separator)) return 0;
    if (SvROK(separator)) {
        size = pwp_integer(aTHX_ SvRV(separator));
        if (size > 0) return (size_t)size;
    }
    croak("%s::readline does not split lines", pwp_called(aTHX_ "Pipework::FD"));
}

SV *pwp_fd_readline(pTHX_ SV *fd) {
    pwk_error error;
    pwk_status status;
    SV *result;
    size_t wanted, got;
    int number;
    if (!pwp_fd_number(aTHX_ fd, "readline", &number)) return NULL;
    wanted = record_size(aTHX);
    if (wanted) {
        record_arguments arguments = {number, NULL, wanted, 0};
        pwp_must_fit(aTHX_ wanted + 1);
        arguments.into = result = sv_2mortal(newSV(wanted + 1));
        SvPOK_on(result);
        status = pwp_wait(aTHX_ NULL, read_record, &arguments, PWK_NEVER, &error);
        got = arguments.got;
        SvPVX(result)[got] = '\0';
        SvCUR_set(result, got);
    } else {
        pwk_buffer *data;
        ENTER;
        status = slurp_all(aTHX_ number, SIZE_MAX, PWK_NEVER, &data, &error);
        got = data->len;
        result = status == PWK_OK && got ? pwp_string(aTHX_ data->data, got) : NULL;
        LEAVE;
    }
    if (status != PWK_OK) {
        (void)pwp_fd_ended(aTHX_ status, &error, got);
        return NULL;
    }
    if (got == 0) return NULL;
    PWP_FD_FROM_OUTSIDE(result);
    return result;
}

AV *pwp_fd_records(pTHX_ SV *fd) {
    AV *records;
    pwk_error error;
    pwk_buffer *data;
    size_t size, at;
    int number;
    if (!pwp_fd_number(aTHX_ fd, "readline", &number)) return NULL;
    size = record_size(aTHX);
    records = (AV *)sv_2mortal((SV *)newAV());
    ENTER;
    if (slurp_all(aTHX_ number, SIZE_MAX, PWK_NEVER, &data, &error) != PWK_OK) {
        LEAVE;
        pwp_failed(aTHX_ &error);
        return NULL;
    }
    if (size == 0) size = data->len;
    for (at = 0; at < data->len; at += size) {
        size_t len = data->len - at < size ? data->len - at : size;
        SV *record = newSVpvn((const char *)data->data + at, len);
        PWP_FD_FROM_OUTSIDE(record);
        av_push(records, record);
    }
    LEAVE;
    return records;
}
