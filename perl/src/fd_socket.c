/* Sockets of Pipework::FD. */
#include "fd.h"

#include <sys/socket.h>

IV pwp_fd_socket(pTHX_ SV *fd, SV *family, SV *type, SV *protocol) {
    int of_family, of_type, of_protocol;
    IV made;
    pwp_must_be_writable(aTHX_ fd);
    of_family = (int)pwp_integer(aTHX_ family);
    of_type = (int)pwp_integer(aTHX_ type);
    of_protocol = (int)pwp_integer(aTHX_ protocol);
    made = pwp_fd_made(aTHX_ socket(of_family, of_type | SOCK_CLOEXEC, of_protocol),
                       of_type & SOCK_CLOEXEC);
    if (made != PWP_FD_UNDEF) pwp_fd_give(aTHX_ fd, NULL, (int[]){(int)made, -1});
    return made;
}

IV pwp_fd_socketpair(pTHX_ SV *one, SV *other, SV *family, SV *type, SV *protocol) {
    int of_family, of_type, of_protocol, fds[2];
    pwp_must_be_writable(aTHX_ one);
    pwp_must_be_writable(aTHX_ other);
    of_family = (int)pwp_integer(aTHX_ family);
    of_type = (int)pwp_integer(aTHX_ type);
    of_protocol = (int)pwp_integer(aTHX_ protocol);
    if (socketpair(of_family, of_type | SOCK_CLOEXEC, of_protocol, fds) < 0) return PWP_FD_UNDEF;
    pwp_fd_made(aTHX_ fds[0], of_type & SOCK_CLOEXEC);
    pwp_fd_made(aTHX_ fds[1], of_type & SOCK_CLOEXEC);
    pwp_fd_give(aTHX_ one, other, fds);
    return 1;
}

IV pwp_fd_bind(pTHX_ SV *fd, SV *address) {
    int number;
    pwk_bytes bytes;
    if (!pwp_fd_number(aTHX_ fd, "bind", &number)) return PWP_FD_UNDEF;
    bytes = pwp_fd_bytes(aTHX_ address, "bind");
    return bind(number, bytes.data, (socklen_t)bytes.len) < 0 ? PWP_FD_UNDEF : 1;
}

IV pwp_fd_connect(pTHX_ SV *fd, SV *address) {
    int number;
    pwk_bytes bytes;
    if (!pwp_fd_number(aTHX_ fd, "connect", &number)) return PWP_FD_UNDEF;
    bytes = pwp_fd_bytes(aTHX_ address, "connect");
    return connect(number, bytes.data, (socklen_t)bytes.len) < 0 ? PWP_FD_UNDEF : 1;
}

IV pwp_fd_listen(pTHX_ SV *fd, SV *backlog) {
    int number;
    if (!pwp_fd_number(aTHX_ fd, "listen", &number)) return PWP_FD_UNDEF;
    return listen(number, (int)pwp_integer(aTHX_ backlog)) < 0 ? PWP_FD_UNDEF : 1;
}

IV pwp_fd_shutdown(pTHX_ SV *fd, SV *how) {
    int number;
    if (!pwp_fd_number(aTHX_ fd, "shutdown", &number)) return PWP_FD_UNDEF;
    return shutdown(number, (int)pwp_integer(aTHX_ how)) < 0 ? PWP_FD_UNDEF : 1;
}

IV pwp_fd_sockatmark(pTHX_ SV *fd) {
    int number, result;
    if (!pwp_fd_number(aTHX_ fd, "sockatmark", &number)) return PWP_FD_UNDEF;
    result = sockatmark(number);
    return result < 0 ? PWP_FD_UNDEF : result;
}

SV *pwp_fd_accept(pTHX_ SV *fd, SV *listener, SV *flags) {
    struct sockaddr_storage peer;
    socklen_t len = sizeof peer;
    int number, made, how = SOCK_CLOEXEC;
    if (!pwp_fd_number(aTHX_ listener, flags ? "accept4" : "accept", &number)) return NULL;
    pwp_must_be_writable(aTHX_ fd);
    if (flags) how = (int)pwp_integer(aTHX_ flags);
    made = accept4(number, (struct sockaddr *)&peer, &len, how);
    if (pwp_fd_made(aTHX_ made, flags != NULL) == PWP_FD_UNDEF) return NULL;
    pwp_fd_give(aTHX_ fd, NULL, (int[]){made, -1});
    return pwp_fd_address(aTHX_ &peer, len);
}

SV *pwp_fd_name(pTHX_ SV *fd, bool of_peer) {
    struct sockaddr_storage name;
    socklen_t len = sizeof name;
    struct sockaddr *into = (struct sockaddr *)&name;
    int number;
    if (!pwp_fd_number(aTHX_ fd, of_peer ? "getpeername" : "getsockname", &number)) return NULL;
    if ((of_peer ? getpeername(number, into, &len) : getsockname(number, into, &len)) < 0) {
        return NULL;
    }
    return pwp_fd_address(aTHX_ &name, len);
}

SV *pwp_fd_getsockopt(pTHX_ SV *fd, SV *level, SV *option) {
    char value[256];
    socklen_t len = sizeof value;
    int number, of_level, which;
    if (!pwp_fd_number(aTHX_ fd, "getsockopt", &number)) return NULL;
    of_level = (int)pwp_integer(aTHX_ level);
    which = (int)pwp_integer(aTHX_ option);
    if (getsockopt(number, of_level, which, value, &len) < 0) return NULL;
    return newSVpvn_flags(value, len < sizeof value ? len : sizeof value, SVs_TEMP);
}

/* Whether a string is digits, perhaps after a sign, as no packed option is. */
static bool is_decimal(pwk_bytes text) {
    const char *digits = text.data;
    size_t i = text.len > 1 && (digits[0] == '-' || digits[0] == '+');
    if (text.len == 0) return false;
    for (; i < text.len; i++) {
        if (!isDIGIT_A(digits[i])) return false;
    }
    return true;
}

IV pwp_fd_setsockopt(pTHX_ SV *fd, SV *level, SV *option, SV *value) {
    int number, of_level, which, integer;
    pwk_bytes bytes = {&integer, sizeof integer};
    if (!pwp_fd_number(aTHX_ fd, "setsockopt", &number)) return PWP_FD_UNDEF;
    of_level = (int)pwp_integer(aTHX_ level);
    which = (int)pwp_integer(aTHX_ option);
    value = pwp_fetch(aTHX_ value);
    if (!SvOK(value)) {
        integer = 0;
    } else if (SvNIOK(value)) {
        integer = (int)SvIV_nomg(value);
    } else {
        bytes = pwp_bytes(aTHX_ value, "setsockopt");
        if (is_decimal(bytes)) {
            integer = (int)SvIV_nomg(value);
            bytes.data = &integer;
            bytes.len = sizeof integer;
        }
    }
    return setsockopt(number, of_level, which, bytes.data, (socklen_t)bytes.len) < 0
               ? PWP_FD_UNDEF
               : 1;
}
