/* Pipework::FD: helpers for all of it, and functions for any descriptor. */
#include "fd.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* The kernel may write that much for a command that says nothing about its argument. */
#define SMALLEST_BUFFER 256

/* ---------------------------------------------------------------- arguments */

static bool is_integer(pTHX_ SV *fetched, IV *number) {
    NV value;
    if (!SvOK(fetched) || SvROK(fetched) || isGV_with_GP(fetched)) return false;
    /* A false boolean is a 0 as well. It would be the standard input. */
    if (SvPOK(fetched) && SvCUR(fetched) == 0) return false;
    /* Perl takes it for a number as well. */
    if (SvPOK(fetched) && strEQ(SvPVX_const(fetched), "0 but true")) return false;
    if (SvIOK(fetched)) {
        *number = SvIsUV(fetched) ? -1 : SvIVX(fetched);
        return true;
    }
    if (!SvNOK(fetched) && !looks_like_number(fetched)) return false;
    value = SvNV_nomg(fetched);
    if (!(value > -9e15 && value < 9e15)) return false;
    *number = (IV)value;
    return (NV)*number == value;
}

static int as_descriptor(IV number) {
    return number < INT_MIN || number > INT_MAX ? -1 : (int)number;
}

bool pwp_fd_is_number(pTHX_ SV *fetched, int *fd) {
    IV number;
    if (!is_integer(aTHX_ fetched, &number)) return false;
    *fd = as_descriptor(number);
    return true;
}

bool pwp_fd_number(pTHX_ SV *argument, const char *name, int *fd) {
    const U32 plain = SVf_IOK | SVf_POK | SVs_GMG | SVf_ROK | SVf_IVisUV;
    if (LIKELY((SvFLAGS(argument) & plain) == SVf_IOK)) {
        *fd = as_descriptor(SvIVX(argument));
    } else if (!pwp_fd_is_number(aTHX_ pwp_fetch(aTHX_ argument), fd)) {
        warn("%s::%s called with something other than a file descriptor",
             pwp_called(aTHX_ "Pipework::FD"), name);
        errno = EBADF;
        return false;
    }
    return true;
}

pwk_bytes pwp_fd_bytes(pTHX_ SV *argument, const char *name) {
    return pwp_bytes(aTHX_ pwp_fetch(aTHX_ argument), name);
}

const char *pwp_fd_path(pTHX_ SV *argument) {
    STRLEN len;
    const char *path = SvPV_nomg_const(pwp_fetch(aTHX_ argument), len);
    if (strlen(path) == len) return path;
    errno = ENOENT;
    return NULL;
}

IV pwp_fd_made(pTHX_ int fd, bool asked) {
    if (fd < 0) return PWP_FD_UNDEF;
    if (fd <= PL_maxsysfd && !asked) fcntl(fd, F_SETFD, 0);
    return fd;
}

void pwp_fd_close_both(pTHX_ void *fds) {
    const int *both = fds;
    dSAVE_ERRNO;
    if (both[0] >= 0) close(both[0]);
    if (both[1] >= 0) close(both[1]);
    RESTORE_ERRNO;
}

void pwp_fd_give(pTHX_ SV *one, SV *other, int fds[2]) {
    ENTER;
    SAVEDESTRUCTOR_X(pwp_fd_close_both, fds);
    sv_setiv_mg(one, fds[0]);
    fds[0] = -1;
    if (other) sv_setiv_mg(other, fds[1]);
    fds[1] = -1;
    LEAVE;
}

SV *pwp_fd_address(pTHX_ const struct sockaddr_storage *address, socklen_t len) {
    /* The kernel says how long it would have been. */
    if (len > sizeof *address) len = sizeof *address;
    return newSVpvn_flags((const char *)address, len, SVs_TEMP);
}

/* ---------------------------------------------------------------- descriptors */

IV pwp_fd_dup(pTHX_ SV *fd) {
    int number;
    if (!pwp_fd_number(aTHX_ fd, "dup", &number)) return PWP_FD_UNDEF;
    return pwp_fd_made(aTHX_ fcntl(number, F_DUPFD_CLOEXEC, 0), false);
}

IV pwp_fd_dup2(pTHX_ SV *fd, SV *number) {
    int from, to;
    if (!pwp_fd_number(aTHX_ fd, "dup2", &from)) return PWP_FD_UNDEF;
    if (!pwp_fd_number(aTHX_ number, "dup2", &to)) return PWP_FD_UNDEF;
    if (from == to) return fcntl(from, F_GETFD) < 0 ? PWP_FD_UNDEF : to;
    return dup3(from, to, to > PL_maxsysfd ? O_CLOEXEC : 0) < 0 ? PWP_FD_UNDEF : to;
}

IV pwp_fd_close(pTHX_ SV *fd) {
    int number;
    if (!pwp_fd_number(aTHX_ fd, "close", &number)) return PWP_FD_UNDEF;
    /* Linux has closed it then; to try again may hit one that another thread has opened. */
    return close(number) < 0 && errno != EINTR ? PWP_FD_UNDEF : 1;
}

IV pwp_fd_pipe(pTHX_ SV *read_end, SV *write_end) {
    int fds[2];
    pwp_must_be_writable(aTHX_ read_end);
    pwp_must_be_writable(aTHX_ write_end);
    if (pipe2(fds, O_CLOEXEC) < 0) return PWP_FD_UNDEF;
    pwp_fd_made(aTHX_ fds[0], false);
    pwp_fd_made(aTHX_ fds[1], false);
    pwp_fd_give(aTHX_ read_end, write_end, fds);
    return 1;
}

IV pwp_fd_seek(pTHX_ SV *fd, SV *offset, SV *whence) {
    int number, from;
    IV position;
    if (!pwp_fd_number(aTHX_ fd, "sysseek", &number)) return PWP_FD_UNDEF;
    position = pwp_integer(aTHX_ offset);
    from = (int)pwp_integer(aTHX_ whence);
    position = lseek(number, position, from);
    return position < 0 ? PWP_FD_UNDEF : position;
}

/*
 * The argument of fcntl and ioctl: a number, or the memory of a string, which is made as long as the data that
 * the kernel may write there.
 */
static void *command_argument(pTHX_ SV *argument, size_t needed) {
    STRLEN len;
    char *memory;
    SvGETMAGIC(argument);
    if (!SvOK(argument)) return NULL;
    if (SvNIOK(argument)) return INT2PTR(void *, SvIV_nomg(argument));
    pwp_must_be_writable(aTHX_ argument);
    memory = SvPV_force_nomg(argument, len);
    if (SvUTF8(argument)) {
        sv_utf8_downgrade(argument, FALSE);
        memory = SvPV_force_nomg(argument, len);
    }
    if (len < needed) {
        memory = SvGROW(argument, needed + 1);
        Zero(memory + len, needed + 1 - len, char);
        SvCUR_set(argument, needed);
    }
    return memory;
}

IV pwp_fd_fcntl(pTHX_ SV *fd, SV *command, SV *argument) {
    int number, which, result;
    void *given;
    if (!pwp_fd_number(aTHX_ fd, "fcntl", &number)) return PWP_FD_UNDEF;
    which = (int)pwp_integer(aTHX_ command);
    given = command_argument(aTHX_ argument, SMALLEST_BUFFER);
    result = fcntl(number, which, given);
    if (SvPOK(argument)) SvSETMAGIC(argument);
    return result == -1 ? PWP_FD_UNDEF : result;
}

IV pwp_fd_ioctl(pTHX_ SV *fd, SV *request, SV *argument) {
    int number, result;
    unsigned long which;
    void *given;
    if (!pwp_fd_number(aTHX_ fd, "ioctl", &number)) return PWP_FD_UNDEF;
    which = pwp_count(aTHX_ request);
    given = command_argument(
        aTHX_ argument, _IOC_SIZE(which) < SMALLEST_BUFFER ? SMALLEST_BUFFER : _IOC_SIZE(which));
    result = ioctl(number, which, given);
    if (SvPOK(argument)) SvSETMAGIC(argument);
    return result == -1 ? PWP_FD_UNDEF : result;
}
