/* Files of Pipework::FD: opened, made, looked at. */
#include "fd.h"

#include <fcntl.h>
#include <sys/stat.h>

#define USUAL_MODE 0666

/* A mode that was not given is the usual one. */
static mode_t mode_of(pTHX_ SV *mode) {
    return mode ? (mode_t)pwp_integer(aTHX_ mode) : USUAL_MODE;
}

/* The arguments of all three, in their order. */
static IV open_in(pTHX_ int folder, SV *path, SV *flags, SV *mode) {
    const char *name;
    int how;
    mode_t permissions;
    path = pwp_fetch(aTHX_ path);
    how = (int)pwp_integer(aTHX_ flags);
    permissions = mode_of(aTHX_ mode);
    name = pwp_fd_path(aTHX_ path);
    if (!name) return PWP_FD_UNDEF;
    return pwp_fd_made(aTHX_ openat(folder, name, how | O_CLOEXEC, permissions), how & O_CLOEXEC);
}

IV pwp_fd_sysopen(pTHX_ SV *fd, SV *path, SV *flags, SV *mode) {
    IV made;
    pwp_must_be_writable(aTHX_ fd);
    made = open_in(aTHX_ AT_FDCWD, path, flags, mode);
    if (made != PWP_FD_UNDEF) pwp_fd_give(aTHX_ fd, NULL, (int[]){(int)made, -1});
    return made;
}

IV pwp_fd_open(pTHX_ SV *path, SV *flags, SV *mode) {
    return open_in(aTHX_ AT_FDCWD, path, flags, mode);
}

IV pwp_fd_openat(pTHX_ SV *folder, SV *path, SV *flags, SV *mode) {
    int number;
    if (!pwp_fd_number(aTHX_ folder, "openat", &number)) return PWP_FD_UNDEF;
    return open_in(aTHX_ number, path, flags, mode);
}

static IV make_fifo(pTHX_ int folder, SV *path, SV *mode) {
    const char *name;
    mode_t permissions;
    path = pwp_fetch(aTHX_ path);
    permissions = mode_of(aTHX_ mode);
    name = pwp_fd_path(aTHX_ path);
    return !name || mkfifoat(folder, name, permissions) < 0 ? PWP_FD_UNDEF : 1;
}

IV pwp_fd_mkfifo(pTHX_ SV *path, SV *mode) {
    return make_fifo(aTHX_ AT_FDCWD, path, mode);
}

IV pwp_fd_mkfifoat(pTHX_ SV *folder, SV *path, SV *mode) {
    int number;
    if (!pwp_fd_number(aTHX_ folder, "mkfifoat", &number)) return PWP_FD_UNDEF;
    return make_fifo(aTHX_ number, path, mode);
}

bool pwp_fd_stat(pTHX_ SV *target, bool follow, struct stat *status) {
    const char *path;
    int fd;
    target = pwp_fetch(aTHX_ target);
    if (SvNIOK(target) || SvROK(target)) {
        return pwp_fd_number(aTHX_ target, follow ? "stat" : "lstat", &fd)
               && fstat(fd, status) == 0;
    }
    path = pwp_fd_path(aTHX_ target);
    return path && (follow ? stat(path, status) : lstat(path, status)) == 0;
}

SV *pwp_fd_temporary(pTHX_ SV *template, IV *fd) {
    static const char six[] = "XXXXXX";
    SV *fetched = pwp_fetch(aTHX_ template);
    STRLEN len;
    const char *text = SvPV_nomg_const(fetched, len);
    SV *path = newSVpvn_flags(text, len, SVs_TEMP | SvUTF8(fetched));
    pwk_error error;
    pwk_status status;
    int made[] = {-1, -1};
    if (len < 6 || memcmp(text + len - 6, six, 6) != 0) {
        croak("The template must end with at least 6 'X' characters");
    }
    if (memchr(text, 0, len)) croak("Error creating temp file: the template has a NUL in it");
    status = fd ? pwk_fd_mkstemp(AT_FDCWD, SvPVX(path), &made[0], &error)
                : pwk_fd_mktemp(AT_FDCWD, SvPVX(path), &error);
    if (status != PWK_OK) {
        pwp_failed(aTHX_ &error);
        croak("Error creating temp file %" SVf ": %s", SVfARG(path), Strerror(errno));
    }
    if (fd) *fd = pwp_fd_made(aTHX_ made[0], false);
    if (!SvREADONLY(template)) {
        ENTER;
        SAVEDESTRUCTOR_X(pwp_fd_close_both, made);
        sv_setsv_flags(template, path, SV_NOSTEAL);
        SvSETMAGIC(template);
        made[0] = -1;
        LEAVE;
    }
    return path;
}
