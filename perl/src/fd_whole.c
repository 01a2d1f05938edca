/*
 * All of it, where a system call may leave the rest: read, write, copy, until a deadline. After a
 * signal it goes on where it stopped.
 */
#include "fd.h"

/* A transfer, and how far it has got. */
typedef struct {
    pwk_status (*go_on)(void *transfer, pwk_deadline until, uint64_t *moved, pwk_error *error);
    int from, to;
    char *memory;
    uint64_t offset, len, done;
} transfer;

static uint64_t left(const transfer *of) {
    return of->len == UINT64_MAX ? UINT64_MAX : of->len - of->done;
}

static pwk_status read_on(void *of_all, pwk_deadline until, uint64_t *moved, pwk_error *error) {
    transfer *of = of_all;
    size_t len = 0;
    pwk_status status =
        pwk_fd_read_full(of->from, of->memory + of->done, left(of), until, &len, error);
    *moved = len;
    return status;
}

static pwk_status write_on(void *of_all, pwk_deadline until, uint64_t *moved, pwk_error *error) {
    transfer *of = of_all;
    *moved = left(of);
    return pwk_fd_write_all(of->to, of->memory + of->done, left(of), until, error);
}

static pwk_status copy_on(void *of_all, pwk_deadline until, uint64_t *moved, pwk_error *error) {
    transfer *of = of_all;
    return pwk_fd_copy_all(of->from, of->to, left(of), until, moved, error);
}

static pwk_status splice_on(void *of_all, pwk_deadline until, uint64_t *moved, pwk_error *error) {
    transfer *of = of_all;
    return pwk_fd_splice_all(of->from, of->to, left(of), until, moved, error);
}

static pwk_status sendfile_on(void *of_all, pwk_deadline until, uint64_t *moved, pwk_error *error) {
    transfer *of = of_all;
    return pwk_fd_sendfile_all(of->to, of->from, of->offset + of->done, left(of), until, moved,
                               error);
}

static pwk_status attempt(pTHX_ void *arguments, pwk_deadline until, pwk_error *error) {
    transfer *of = arguments;
    uint64_t moved = 0;
    pwk_status status = of->go_on(of, until, &moved, error);
    of->done += status == PWK_OK ? moved : error->done;
    return status;
}

IV pwp_fd_ended(pTHX_ pwk_status status, pwk_error *error, uint64_t done) {
    if (status == PWK_OK) return (IV)done;
    error->done = done;
    sv_setuv(get_sv("Pipework::FD::done", GV_ADD), done);
    pwp_failed(aTHX_ error);
    return PWP_FD_UNDEF;
}

static IV run(pTHX_ transfer *of, pwk_deadline deadline) {
    pwk_error error;
    pwk_status status = pwp_wait(aTHX_ NULL, attempt, of, deadline, &error);
    return pwp_fd_ended(aTHX_ status, &error, of->done);
}

/* A length that was not given, or undef, is everything. */
static uint64_t length_of(pTHX_ SV *len) {
    IV wanted;
    if (!len) return UINT64_MAX;
    len = pwp_number(aTHX_ len);
    if (!SvOK(len)) return UINT64_MAX;
    wanted = pwp_integer(aTHX_ len);
    if (wanted < 0) croak("Negative length");
    return (uint64_t)wanted;
}

IV pwp_fd_copy_all(pTHX_ SV *from, SV *to, SV *len, SV *seconds, bool splice) {
    transfer of = {splice ? splice_on : copy_on, -1, -1, NULL, 0, 0, 0};
    const char *name = splice ? "splice_all" : "copy_all";
    if (!pwp_fd_number(aTHX_ from, name, &of.from)) return PWP_FD_UNDEF;
    if (!pwp_fd_number(aTHX_ to, name, &of.to)) return PWP_FD_UNDEF;
    of.len = length_of(aTHX_ len);
    return run(aTHX_ &of, pwp_deadline(aTHX_ seconds));
}

IV pwp_fd_sendfile_all(pTHX_ SV *socket, SV *source, SV *len, SV *offset, SV *seconds) {
    transfer of = {sendfile_on, -1, -1, NULL, 0, 0, 0};
    IV begin;
    if (!pwp_fd_number(aTHX_ socket, "sendfile_all", &of.to)) return PWP_FD_UNDEF;
    if (!pwp_fd_number(aTHX_ source, "sendfile_all", &of.from)) return PWP_FD_UNDEF;
    of.len = length_of(aTHX_ len);
    begin = offset ? pwp_integer(aTHX_ offset) : 0;
    if (begin < 0) croak("Negative offset");
    of.offset = (uint64_t)begin;
    return run(aTHX_ &of, pwp_deadline(aTHX_ seconds));
}

IV pwp_fd_read_full(pTHX_ SV *fd, SV *buffer, SV *len, SV *position, SV *seconds) {
    transfer of = {read_on, -1, -1, NULL, 0, 0, 0};
    const char *name = position ? "pread_full" : "read_full";
    pwk_deadline deadline = PWK_NEVER;
    SV *data;
    IV result, begin = 0;
    if (!pwp_fd_number(aTHX_ fd, name, &of.from)) return PWP_FD_UNDEF;
    pwp_must_be_writable(aTHX_ pwp_keep(aTHX_ buffer));
    of.len = length_of(aTHX_ len);
    if (of.len > PTRDIFF_MAX / 2) croak("%s needs a length", name);
    if (position) begin = pwp_integer(aTHX_ position);
    if (begin < 0) croak("Negative offset");
    deadline = pwp_deadline(aTHX_ seconds);
    /* A handler may change the buffer, but not this one. */
    pwp_must_fit(aTHX_ of.len + 1);
    data = sv_2mortal(newSV(of.len + 1));
    (void)SvPOK_only(data);
    of.memory = SvPVX(data);
    if (position) {
        pwk_error error;
        size_t got = 0;
        pwk_status status =
            pwk_fd_pread_full(of.from, of.memory, of.len, (uint64_t)begin, &got, &error);
        of.done = status == PWK_OK ? got : error.done;
        result = pwp_fd_ended(aTHX_ status, &error, of.done);
    } else {
        result = run(aTHX_ &of, deadline);
    }
    of.memory[of.done] = '\0';
    SvCUR_set(data, of.done);
    sv_setsv_mg(buffer, data);
    PWP_FD_FROM_OUTSIDE(buffer);
    return result;
}

IV pwp_fd_write_all(pTHX_ SV *fd, SV *data, SV *position, SV *seconds) {
    transfer of = {write_on, -1, -1, NULL, 0, 0, 0};
    const char *name = position ? "pwrite_all" : "write_all";
    pwk_deadline deadline;
    pwk_bytes bytes;
    IV begin = 0;
    if (!pwp_fd_number(aTHX_ fd, name, &of.to)) return PWP_FD_UNDEF;
    /* A handler may change the caller's, but not this one. Perl shares long strings. */
    data = sv_mortalcopy(data);
    if (position) begin = pwp_integer(aTHX_ position);
    if (begin < 0) croak("Negative offset");
    deadline = pwp_deadline(aTHX_ seconds);
    bytes = pwp_bytes(aTHX_ data, name);
    if (position) {
        pwk_error error;
        pwk_status status =
            pwk_fd_pwrite_all(of.to, bytes.data, bytes.len, (uint64_t)begin, &error);
        return pwp_fd_ended(aTHX_ status, &error, status == PWK_OK ? bytes.len : error.done);
    }
    of.memory = (char *)bytes.data;
    of.len = bytes.len;
    return run(aTHX_ &of, deadline);
}

IV pwp_fd_close_range(pTHX_ SV *first, SV *last, SV *on_exec) {
    pwk_error error;
    pwk_status status;
    int begin, end = INT_MAX;
    if (!pwp_fd_number(aTHX_ first, "close_range", &begin)) return PWP_FD_UNDEF;
    last = pwp_fetch(aTHX_ last);
    if (SvOK(last)) {
        if (!pwp_fd_number(aTHX_ last, "close_range", &end)) return PWP_FD_UNDEF;
        /* No descriptor is so large. */
        if (end < 0 && pwp_integer(aTHX_ last) > 0) end = INT_MAX;
    }
    if (begin < 0 || end < 0) {
        errno = EBADF;
        return PWP_FD_UNDEF;
    }
    status = SvTRUE(on_exec)
                 ? pwk_fd_close_range_on_exec((uint32_t)begin, (uint32_t)end, &error)
                 : pwk_fd_close_range((uint32_t)begin, (uint32_t)end, &error);
    return pwp_fd_ended(aTHX_ status, &error, 1);
}
