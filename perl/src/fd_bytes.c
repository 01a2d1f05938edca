/* Reading and writing of Pipework::FD, one system call each. */
#include "fd.h"

#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

/* Linux moves no more than this at once, so no more memory than this is taken. */
#define MOST_AT_ONCE ((size_t)0x7ffff000)

static bool is_plain(SV *argument) {
    return !SvMAGICAL(argument) && !SvROK(argument) && SvOK(argument);
}

/* Text in the place of a number gives a warning. */
static bool is_plain_number(SV *argument) {
    return (SvFLAGS(argument) & (SVf_IOK | SVs_GMG | SVf_ROK)) == SVf_IOK;
}

bool pwp_fd_are_plain(SV *fd, SV *data, SV *len, SV *offset) {
    return is_plain_number(fd) && !SvMAGICAL(data) && !SvROK(data)
           && (!len || is_plain_number(len)) && (!offset || is_plain_number(offset));
}

static size_t length_of(pTHX_ SV *len) {
    IV wanted = pwp_integer(aTHX_ len);
    if (wanted < 0) croak("Negative length");
    return (size_t)wanted < MOST_AT_ONCE ? (size_t)wanted : MOST_AT_ONCE;
}

/* ---------------------------------------------------------------- in */

/*
 * Makes a string of `buffer` with space for `len` bytes behind `offset`, and zeros before it if
 * it was shorter. Returns where to write. Its content stays until it is filled; `characters`
 * says whether those were characters, which unfilled has to know.
 */
static char *space(pTHX_ SV *buffer, size_t offset, size_t len, bool *characters) {
    STRLEN held;
    char *memory;
    if (!SvOK(buffer)) sv_setpvs(buffer, "");
    memory = SvPV_force_nomg(buffer, held);
    if (SvLEN(buffer) < offset + len + 1) {
        pwp_must_fit(aTHX_ offset + len + 1);
        memory = SvGROW(buffer, offset + len + 1);
    }
    /* With offset 0 the content is replaced as a whole, and stays as it is until then. */
    *characters = SvUTF8(buffer) && offset > 0;
    if (*characters) {
        if (!sv_utf8_downgrade(buffer, TRUE)) croak("Wide character in sysread");
        memory = SvPV_force_nomg(buffer, held);
    }
    if (offset > held) Zero(memory + held, offset - held, char);
    return memory + offset;
}

/* Nothing came: the buffer is unchanged. */
static void unfilled(pTHX_ SV *buffer, bool characters) {
    dSAVE_ERRNO;
    if (characters) sv_utf8_upgrade_nomg(buffer);
    RESTORE_ERRNO;
}

/* `len` bytes in all are in the buffer. */
static void filled(pTHX_ SV *buffer, size_t len) {
    SvPVX(buffer)[len] = '\0';
    SvCUR_set(buffer, len);
    (void)SvPOK_only(buffer);
    SvSETMAGIC(buffer);
    PWP_FD_FROM_OUTSIDE(buffer);
}

/* Where in the buffer to begin. A negative offset counts from the end of its content. */
static size_t begin_at(pTHX_ SV *buffer, IV offset) {
    STRLEN held = 0;
    SvGETMAGIC(buffer);
    if (offset >= 0) return (size_t)offset;
    if (SvOK(buffer)) (void)SvPV_nomg_const(buffer, held);
    if (SvOK(buffer) && SvUTF8(buffer)) held = sv_len_utf8_nomg(buffer);
    if ((size_t)0 - (size_t)offset > held) croak("Offset outside string");
    return held + (size_t)offset;
}

IV pwp_fd_read(pTHX_ SV *fd, SV *buffer, SV *len, SV *offset) {
    int number;
    size_t wanted, begin = 0;
    ssize_t got;
    char *into;
    bool characters;
    if (!pwp_fd_number(aTHX_ fd, "sysread", &number)) return PWP_FD_UNDEF;
    pwp_must_be_writable(aTHX_ buffer);
    wanted = length_of(aTHX_ len);
    if (offset && SvOK(offset)) begin = begin_at(aTHX_ buffer, pwp_integer(aTHX_ offset));
    into = space(aTHX_ buffer, begin, wanted, &characters);
    got = read(number, into, wanted);
    if (got < 0) {
        unfilled(aTHX_ buffer, characters);
        return PWP_FD_UNDEF;
    }
    filled(aTHX_ buffer, begin + (size_t)got);
    return got;
}

IV pwp_fd_pread(pTHX_ SV *fd, SV *buffer, SV *len, SV *position) {
    int number;
    size_t wanted;
    IV from;
    ssize_t got;
    char *into;
    bool characters;
    if (!pwp_fd_number(aTHX_ fd, "pread", &number)) return PWP_FD_UNDEF;
    pwp_must_be_writable(aTHX_ buffer);
    wanted = length_of(aTHX_ len);
    from = pwp_integer(aTHX_ position);
    into = space(aTHX_ buffer, 0, wanted, &characters);
    got = pread(number, into, wanted, from);
    if (got < 0) return PWP_FD_UNDEF;
    filled(aTHX_ buffer, (size_t)got);
    return got;
}

SV *pwp_fd_recv(pTHX_ SV *fd, SV *buffer, SV *len, SV *flags) {
    struct sockaddr_storage sender;
    socklen_t sender_len = sizeof sender;
    int number, how;
    size_t wanted;
    ssize_t got;
    char *into;
    bool characters;
    if (!pwp_fd_number(aTHX_ fd, "recv", &number)) return NULL;
    pwp_must_be_writable(aTHX_ buffer);
    wanted = length_of(aTHX_ len);
    flags = pwp_number(aTHX_ flags);
    how = SvOK(flags) ? (int)pwp_integer(aTHX_ flags) : 0;
    into = space(aTHX_ buffer, 0, wanted, &characters);
    got = recvfrom(number, into, wanted, how, (struct sockaddr *)&sender, &sender_len);
    if (got < 0) return NULL;
    /* MSG_TRUNC says how long the datagram was. */
    filled(aTHX_ buffer, (size_t)got < wanted ? (size_t)got : wanted);
    return pwp_fd_address(aTHX_ &sender, sender_len);
}

/* ---------------------------------------------------------------- out */

/* The part of `data` that the arguments choose; they may be NULL, or undef. */
static pwk_bytes chosen(pTHX_ SV *data, const char *name, SV *len, SV *offset) {
    IV wanted = IV_MAX, begin = 0;
    pwk_bytes bytes;
    if (len) len = pwp_number(aTHX_ len);
    if (len && SvOK(len)) wanted = pwp_integer(aTHX_ len);
    if (offset) offset = pwp_number(aTHX_ offset);
    if (offset && SvOK(offset)) begin = pwp_integer(aTHX_ offset);
    if (wanted < 0) croak("Negative length");
    if (SvPOK(data) && !SvUTF8(data)) {
        bytes.data = SvPVX_const(data);
        bytes.len = SvCUR(data);
    } else {
        bytes = pwp_bytes(aTHX_ data, name);
    }
    if (begin < 0) begin += (IV)bytes.len;
    if (begin < 0) croak("Offset outside string");
    if ((size_t)begin > bytes.len) begin = (IV)bytes.len;
    bytes.data = (const char *)bytes.data + begin;
    bytes.len -= (size_t)begin;
    if ((size_t)wanted < bytes.len) bytes.len = (size_t)wanted;
    return bytes;
}

/* `data`, fetched; NULL, after a warning, if it is undef. */
static SV *fetched(pTHX_ SV *data, const char *name) {
    data = pwp_fetch(aTHX_ data);
    if (SvOK(data)) return data;
    warn("%s::%s called with use of uninitialized value", pwp_called(aTHX_ "Pipework::FD"), name);
    return NULL;
}

IV pwp_fd_write(pTHX_ SV *fd, SV *data, SV *len, SV *offset) {
    int number;
    pwk_bytes bytes;
    ssize_t put;
    if (!pwp_fd_number(aTHX_ fd, "syswrite", &number)) return PWP_FD_UNDEF;
    if (!is_plain(data)) data = fetched(aTHX_ data, "syswrite");
    if (!data) return 0;
    bytes = chosen(aTHX_ data, "syswrite", len, offset);
    put = write(number, bytes.data, bytes.len);
    return put < 0 ? PWP_FD_UNDEF : put;
}

IV pwp_fd_pwrite(pTHX_ SV *fd, SV *data, SV *len, SV *position) {
    int number;
    pwk_bytes bytes;
    ssize_t put;
    IV at;
    if (!pwp_fd_number(aTHX_ fd, "pwrite", &number)) return PWP_FD_UNDEF;
    data = fetched(aTHX_ data, "pwrite");
    if (!data) return 0;
    len = pwp_number(aTHX_ len);
    at = pwp_integer(aTHX_ position);
    bytes = chosen(aTHX_ data, "pwrite", len, NULL);
    put = pwrite(number, bytes.data, bytes.len, at);
    return put < 0 ? PWP_FD_UNDEF : put;
}

IV pwp_fd_send(pTHX_ SV *fd, SV *data, SV *flags, SV *to) {
    int number, how = 0;
    pwk_bytes bytes, address = {NULL, 0};
    ssize_t put;
    if (!pwp_fd_number(aTHX_ fd, "send", &number)) return PWP_FD_UNDEF;
    data = fetched(aTHX_ data, "send");
    if (!data) {
        errno = EINVAL;
        return PWP_FD_UNDEF;
    }
    if (flags) {
        flags = pwp_number(aTHX_ flags);
        if (SvOK(flags)) how = (int)pwp_integer(aTHX_ flags);
    }
    if (to) to = pwp_fetch(aTHX_ to);
    if (to && SvOK(to)) address = pwp_bytes(aTHX_ to, "send");
    bytes = chosen(aTHX_ data, "send", NULL, NULL);
    put = sendto(number, bytes.data, bytes.len, how, address.data, (socklen_t)address.len);
    return put < 0 ? PWP_FD_UNDEF : put;
}

IV pwp_fd_sendfile(pTHX_ SV *socket, SV *source, SV *len, SV *offset) {
    int to, from;
    size_t wanted;
    off_t position;
    ssize_t moved;
    if (!pwp_fd_number(aTHX_ socket, "sendfile", &to)) return PWP_FD_UNDEF;
    if (!pwp_fd_number(aTHX_ source, "sendfile", &from)) return PWP_FD_UNDEF;
    wanted = length_of(aTHX_ len);
    position = pwp_integer(aTHX_ offset);
    moved = sendfile(to, from, &position, wanted);
    return moved < 0 ? PWP_FD_UNDEF : moved;
}
