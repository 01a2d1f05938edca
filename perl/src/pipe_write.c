/* The writing end of Pipework::Pipe; and copies between a pipe and a descriptor, both ways. */
#include "pipe.h"
#include "fd.h"

/* ---------------------------------------------------------------- send */

typedef struct {
    SV *self;
    pwp_pipe_end *end;
    const char *data;
    size_t len, done;
} sending;

static pwk_status send_on(pTHX_ void *arguments, pwk_deadline until, pwk_error *error) {
    sending *of = arguments;
    pwk_status status;
    if (!pwp_pipe_is_open(aTHX_ of->self, of->end, error)) return error->kind;
    status = pwk_pipe_writer_send_all(of->end->writer, of->data + of->done, of->len - of->done,
                                      until, error);
    of->done = status == PWK_OK ? of->len : of->done + error->done;
    return status;
}

IV pwp_pipe_send(pTHX_ SV *self, SV *data, SV *seconds) {
    sending of = {self, NULL, NULL, 0, 0};
    pwk_deadline deadline;
    pwk_bytes bytes;
    pwk_error error;
    /* A handler may change the caller's, but not this one. Perl shares long strings. */
    data = sv_mortalcopy(data);
    deadline = pwp_deadline(aTHX_ seconds);
    bytes = pwp_bytes(aTHX_ data, "send");
    of.end = pwp_pipe_use(aTHX_ self, false);
    if (!of.end) return -1;
    of.data = bytes.data;
    of.len = bytes.len;
    if (pwp_wait(aTHX_ &of.self, send_on, &of, deadline, &error) == PWK_OK) return (IV)of.len;
    pwp_pipe_failed(aTHX_ of.end, &error, of.done);
    return -1;
}

/* ---------------------------------------------------------------- copies */

typedef struct {
    SV *self;
    pwp_pipe_end *end;
    int fd;
    uint64_t len, done;
} copying;

static uint64_t left(const copying *of) {
    return of->len == UINT64_MAX ? UINT64_MAX : of->len - of->done;
}

static pwk_status copy_to(pTHX_ void *arguments, pwk_deadline until, pwk_error *error) {
    copying *of = arguments;
    pwp_pipe_end *end = of->end;
    uint64_t copied = 0;
    pwk_status status;
    if (!pwp_pipe_is_open(aTHX_ of->self, end, error)) return error->kind;
    if (end->len > end->at) {
        /* What readline has taken comes first. */
        uint64_t len = end->len - end->at;
        if (len > left(of)) len = left(of);
        status = pwk_fd_write_all(of->fd, end->held + end->at, (size_t)len, until, error);
        if (status != PWK_OK) len = error->done;
        pwp_pipe_drop(end, (size_t)len);
        of->done += len;
        if (status != PWK_OK) return status;
    }
    if (left(of) == 0) return PWK_OK;
    status = pwk_pipe_reader_copy_to_fd(end->reader, of->fd, left(of), until, &copied, error);
    of->done += status == PWK_OK ? copied : error->done;
    return status;
}

static pwk_status copy_from(pTHX_ void *arguments, pwk_deadline until, pwk_error *error) {
    copying *of = arguments;
    uint64_t copied = 0;
    pwk_status status;
    if (!pwp_pipe_is_open(aTHX_ of->self, of->end, error)) return error->kind;
    status =
        pwk_pipe_writer_copy_from_fd(of->end->writer, of->fd, left(of), until, &copied, error);
    of->done += status == PWK_OK ? copied : error->done;
    return status;
}

/* The descriptor of a handle, or a number. */
static int descriptor(pTHX_ SV *fd) {
    int number;
    fd = pwp_fetch(aTHX_ fd);
    if (SvROK(fd) || isGV_with_GP(fd)) {
        PerlIO *file = IoIFP(sv_2io(fd));
        return file ? PerlIO_fileno(file) : -1;
    }
    if (!pwp_fd_is_number(aTHX_ fd, &number)) croak("Neither a descriptor nor a handle");
    return number;
}

IV pwp_pipe_copy(pTHX_ SV *self, SV *fd, SV *len, SV *seconds, bool reads) {
    copying of = {self, NULL, -1, UINT64_MAX, 0};
    pwk_deadline deadline;
    pwk_error error;
    of.fd = descriptor(aTHX_ fd);
    len = pwp_number(aTHX_ len);
    if (SvOK(len)) {
        IV wanted = pwp_integer(aTHX_ len);
        if (wanted < 0) croak("Negative length");
        of.len = (uint64_t)wanted;
    }
    deadline = pwp_deadline(aTHX_ seconds);
    of.end = pwp_pipe_use(aTHX_ self, reads);
    if (!of.end) return -1;
    if (pwp_wait(aTHX_ &of.self, reads ? copy_to : copy_from, &of, deadline, &error) == PWK_OK) {
        return (IV)of.done;
    }
    pwp_pipe_failed(aTHX_ of.end, &error, of.done);
    return -1;
}
