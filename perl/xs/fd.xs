MODULE = Pipework    PACKAGE = Pipework::FD

# ------------------------------------------------------------------ sockets

void
socket(SV *fd, SV *family, SV *type, SV *protocol)
  CODE:
    PWP_FD_RETURN(pwp_fd_socket(aTHX_ fd, family, type, protocol));

void
socketpair(SV *one, SV *other, SV *family, SV *type, SV *protocol)
  CODE:
    PWP_FD_RETURN(pwp_fd_socketpair(aTHX_ one, other, family, type, protocol));

void
bind(SV *fd, SV *address)
  ALIAS:
    sysbind = 1
  CODE:
    PERL_UNUSED_VAR(ix);
    PWP_FD_RETURN(pwp_fd_bind(aTHX_ fd, address));

void
listen(SV *fd, SV *backlog)
  CODE:
    PWP_FD_RETURN(pwp_fd_listen(aTHX_ fd, backlog));

void
accept(SV *fd, SV *listener)
  CODE:
    PWP_FD_RETURN_SV(pwp_fd_accept(aTHX_ fd, listener, NULL));

void
accept4(SV *fd, SV *listener, SV *flags)
  CODE:
    PWP_FD_RETURN_SV(pwp_fd_accept(aTHX_ fd, listener, flags));

void
accept_multiple(SV *fds, SV *peers, SV *listener)
  PROTOTYPE: \@\@$
  CODE:
    PWP_FD_RETURN(pwp_fd_accept_multiple(aTHX_ fds, peers, listener));

void
connect(SV *fd, SV *address)
  CODE:
    PWP_FD_RETURN(pwp_fd_connect(aTHX_ fd, address));

void
shutdown(SV *fd, SV *how)
  CODE:
    PWP_FD_RETURN(pwp_fd_shutdown(aTHX_ fd, how));

void
sockatmark(SV *fd)
  CODE:
    PWP_FD_RETURN(pwp_fd_sockatmark(aTHX_ fd));

void
getsockopt(SV *fd, SV *level, SV *option)
  CODE:
    PWP_FD_RETURN_SV(pwp_fd_getsockopt(aTHX_ fd, level, option));

void
setsockopt(SV *fd, SV *level, SV *option, SV *value)
  CODE:
    PWP_FD_RETURN(pwp_fd_setsockopt(aTHX_ fd, level, option, value));

void
getpeername(SV *fd)
  CODE:
    PWP_FD_RETURN_SV(pwp_fd_name(aTHX_ fd, true));

void
getsockname(SV *fd)
  CODE:
    PWP_FD_RETURN_SV(pwp_fd_name(aTHX_ fd, false));

void
send(SV *fd, SV *data, SV *flags = NULL, SV *to = NULL)
  CODE:
    PWP_FD_RETURN(pwp_fd_send(aTHX_ fd, data, flags, to));

void
recv(SV *fd, SV *buffer, SV *len, SV *flags)
  CODE:
    PWP_FD_RETURN_SV(pwp_fd_recv(aTHX_ fd, buffer, len, flags));

void
sendfile(SV *socket, SV *source, SV *len, SV *offset)
  CODE:
    PWP_FD_RETURN(pwp_fd_sendfile(aTHX_ socket, source, len, offset));

# ------------------------------------------------------------------ files

void
sysopen(SV *fd, SV *path, SV *flags, SV *mode = NULL)
  ALIAS:
    sysopen4 = 4
  CODE:
    if (ix > items) croak_xs_usage(cv, "fd, path, flags, mode");
    PWP_FD_RETURN(pwp_fd_sysopen(aTHX_ fd, path, flags, mode));

void
open(SV *path, SV *flags, SV *mode = NULL)
  CODE:
    PWP_FD_RETURN(pwp_fd_open(aTHX_ path, flags, mode));

void
openat(SV *folder, SV *path, SV *flags, SV *mode = NULL)
  CODE:
    PWP_FD_RETURN(pwp_fd_openat(aTHX_ folder, path, flags, mode));

void
mkstemp(SV *template)
  PPCODE:
  {
    IV fd;
    SV *path;
    pwp_hold(aTHX_ ax, items);
    path = pwp_fd_temporary(aTHX_ template, &fd);
    PWP_SP_AGAIN;
    if (GIMME_V == G_VOID) XSRETURN_EMPTY;
    mXPUSHi(fd);
    if (GIMME_V == G_LIST) XPUSHs(path);
  }

void
mktemp(SV *template)
  CODE:
    PWP_FD_RETURN_SV(pwp_fd_temporary(aTHX_ template, NULL));

void
mkfifo(SV *path, SV *mode = NULL)
  CODE:
    PWP_FD_RETURN(pwp_fd_mkfifo(aTHX_ path, mode));

void
mkfifoat(SV *folder, SV *path, SV *mode = NULL)
  CODE:
    PWP_FD_RETURN(pwp_fd_mkfifoat(aTHX_ folder, path, mode));

void
stat(SV *target)
  ALIAS:
    lstat = 1
  PPCODE:
  {
    struct stat status;
    bool found;
    pwp_hold(aTHX_ ax, items);
    found = pwp_fd_stat(aTHX_ target, ix == 0, &status);
    PWP_SP_AGAIN;
    if (GIMME_V == G_SCALAR) {
        if (!found) XSRETURN_UNDEF;
        XSRETURN_IV(1);
    }
    if (!found || GIMME_V == G_VOID) XSRETURN_EMPTY;
    EXTEND(SP, 13);
    mPUSHu(status.st_dev);
    mPUSHu(status.st_ino);
    mPUSHu(status.st_mode);
    mPUSHu(status.st_nlink);
    mPUSHu(status.st_uid);
    mPUSHu(status.st_gid);
    mPUSHu(status.st_rdev);
    mPUSHi(status.st_size);
    mPUSHi(status.st_atime);
    mPUSHi(status.st_mtime);
    mPUSHi(status.st_ctime);
    mPUSHi(status.st_blksize);
    mPUSHi(status.st_blocks);
  }

void
sysseek(SV *fd, SV *offset, SV *whence)
  CODE:
    PWP_FD_RETURN(pwp_fd_seek(aTHX_ fd, offset, whence));

# ------------------------------------------------------------------ any descriptor

void
pipe(SV *read_end, SV *write_end)
  ALIAS:
    syspipe = 1
  CODE:
    PERL_UNUSED_VAR(ix);
    PWP_FD_RETURN(pwp_fd_pipe(aTHX_ read_end, write_end));

void
dup(SV *fd)
  CODE:
    PWP_FD_RETURN(pwp_fd_dup(aTHX_ fd));

void
dup2(SV *fd, SV *number)
  CODE:
    PWP_FD_RETURN(pwp_fd_dup2(aTHX_ fd, number));

void
close(SV *fd)
  CODE:
    PWP_FD_RETURN(pwp_fd_close(aTHX_ fd));

void
sysread(SV *fd, SV *buffer, SV *len, SV *offset = NULL)
  ALIAS:
    sysread3 = 3
    sysread4 = 4
  CODE:
    if (ix && ix != items) croak_xs_usage(cv, ix == 3 ? "fd, buffer, len" : "fd, buffer, len, offset");
    if (!pwp_fd_are_plain(fd, buffer, len, offset)) pwp_hold(aTHX_ ax, items);
    PWP_FD_RETURN_HELD(pwp_fd_read(aTHX_ fd, buffer, len, offset));

void
pread(SV *fd, SV *buffer, SV *len, SV *position)
  CODE:
    PWP_FD_RETURN(pwp_fd_pread(aTHX_ fd, buffer, len, position));

void
syswrite(SV *fd, SV *data, SV *len = NULL, SV *offset = NULL)
  ALIAS:
    syswrite2 = 2
    syswrite3 = 3
    syswrite4 = 4
  CODE:
  {
    static const char *const usage[] = {"fd, data", "fd, data, len", "fd, data, len, offset"};
    if (ix && ix != items) croak_xs_usage(cv, usage[ix - 2]);
    if (!pwp_fd_are_plain(fd, data, len, offset)) pwp_hold(aTHX_ ax, items);
    PWP_FD_RETURN_HELD(pwp_fd_write(aTHX_ fd, data, len, offset));
  }

void
pwrite(SV *fd, SV *data, SV *len, SV *position)
  CODE:
    PWP_FD_RETURN(pwp_fd_pwrite(aTHX_ fd, data, len, position));

void
fcntl(SV *fd, SV *command, SV *argument)
  ALIAS:
    sysfcntl = 1
    sysfctrl = 2
  CODE:
    PERL_UNUSED_VAR(ix);
    PWP_FD_RETURN(pwp_fd_fcntl(aTHX_ fd, command, argument));

void
ioctl(SV *fd, SV *request, SV *argument)
  ALIAS:
    sysioctl = 1
  CODE:
  {
    IV result;
    PERL_UNUSED_VAR(ix);
    pwp_hold(aTHX_ ax, items);
    result = pwp_fd_ioctl(aTHX_ fd, request, argument);
    if (result == 0) XSRETURN_PV("0 but true");
    PWP_FD_RETURN_HELD(result);
  }

void
readline(SV *fd)
  PPCODE:
    if (GIMME_V == G_LIST) {
        AV *records;
        SSize_t i;
        pwp_hold(aTHX_ ax, items);
        records = pwp_fd_records(aTHX_ fd);
        PWP_SP_AGAIN;
        if (!records) XSRETURN_UNDEF;
        EXTEND(SP, av_top_index(records) + 1);
        for (i = 0; i <= av_top_index(records); i++) {
            PUSHs(sv_2mortal(SvREFCNT_inc(AvARRAY(records)[i])));
        }
    } else {
        PWP_FD_RETURN_SV(pwp_fd_readline(aTHX_ fd));
    }

# ------------------------------------------------------------------ experimental in IO::FD

void
poll(SV *list, SV *seconds)
  CODE:
    PWP_FD_RETURN(pwp_fd_poll(aTHX_ list, seconds));

NV
clock_gettime_monotonic()
  CODE:
  {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    RETVAL = (NV)now.tv_sec + (NV)now.tv_nsec * 1e-9;
  }
  OUTPUT:
    RETVAL

SV *
SV(SV *size)
  CODE:
  {
    IV bytes;
    pwp_hold(aTHX_ ax, items);
    bytes = pwp_integer(aTHX_ size);
    if (bytes < 0) croak("Negative length");
    pwp_must_fit(aTHX_ (size_t)bytes + 1);
    RETVAL = newSV(bytes ? (STRLEN)bytes : 1);
    SvPVCLEAR(RETVAL);
  }
  OUTPUT:
    RETVAL

# ------------------------------------------------------------------ all of it, and many at once

void
read_full(SV *fd, SV *buffer, SV *len, SV *seconds = NULL)
  CODE:
    PWP_FD_RETURN(pwp_fd_read_full(aTHX_ fd, buffer, len, NULL, seconds));

void
pread_full(SV *fd, SV *buffer, SV *len, SV *position)
  CODE:
    PWP_FD_RETURN(pwp_fd_read_full(aTHX_ fd, buffer, len, position, NULL));

void
write_all(SV *fd, SV *data, SV *seconds = NULL)
  CODE:
    PWP_FD_RETURN(pwp_fd_write_all(aTHX_ fd, data, NULL, seconds));

void
pwrite_all(SV *fd, SV *data, SV *position)
  CODE:
    PWP_FD_RETURN(pwp_fd_write_all(aTHX_ fd, data, position, NULL));

void
slurp(SV *fd, SV *max = NULL, SV *seconds = NULL)
  CODE:
    PWP_FD_RETURN_SV(pwp_fd_slurp(aTHX_ fd, max, seconds));

void
copy_all(SV *from, SV *to, SV *len = NULL, SV *seconds = NULL)
  ALIAS:
    splice_all = 1
  CODE:
    PWP_FD_RETURN(pwp_fd_copy_all(aTHX_ from, to, len, seconds, ix == 1));

void
sendfile_all(SV *socket, SV *source, SV *len = NULL, SV *offset = NULL, SV *seconds = NULL)
  CODE:
    PWP_FD_RETURN(pwp_fd_sendfile_all(aTHX_ socket, source, len, offset, seconds));

void
close_range(SV *first, SV *last = &PL_sv_undef, SV *on_exec = &PL_sv_no)
  CODE:
    PWP_FD_RETURN(pwp_fd_close_range(aTHX_ first, last, on_exec));

void
accept_many(SV *listener, SV *max)
  PPCODE:
  {
    AV *fds = newAV();
    SV *new = sv_2mortal(newRV_noinc((SV *)fds));
    AV *addresses = newAV();
    SV *peers = sv_2mortal(newRV_noinc((SV *)addresses));
    const char *reason;
    pwp_hold(aTHX_ ax, items);
    reason = pwp_fd_accept_many(aTHX_ listener, max, fds, addresses);
    if (!reason) XSRETURN_UNDEF;
    PWP_SP_AGAIN;
    EXTEND(SP, 3);
    mPUSHp(reason, strlen(reason));
    PUSHs(new);
    PUSHs(peers);
  }

void
send_many(SV *socket, SV *list, SV *seconds = NULL)
  CODE:
    PWP_FD_RETURN(pwp_fd_send_many(aTHX_ socket, list, seconds));

MODULE = Pipework    PACKAGE = Pipework::FD::Reserve

void
new(SV *class)
  CODE:
    PWP_FD_RETURN_SV(pwp_fd_reserve_new(aTHX_ class));

bool
is_held(SV *self)
  CODE:
    RETVAL = pwk_reserve_is_held(pwp_state(aTHX_ self, &pwp_fd_reserve));
  OUTPUT:
    RETVAL

void
shed(pwp_object self, SV *listener, SV *max)
  CODE:
    PWP_FD_RETURN_HELD(pwp_fd_reserve_shed(aTHX_ self, listener, max));

MODULE = Pipework    PACKAGE = Pipework::FD::Inbox

void
new(SV *class, SV *max, SV *max_bytes)
  CODE:
    PWP_FD_RETURN_SV(pwp_fd_inbox_new(aTHX_ class, max, max_bytes));

void
recv(pwp_object self, SV *socket, SV *seconds = NULL)
  CODE:
    PWP_FD_RETURN_HELD(pwp_fd_inbox_recv(aTHX_ self, socket, seconds));

void
get(pwp_object self, SV *i)
  PPCODE:
  {
    pwk_datagram datagram;
    if (!pwp_fd_inbox_get(aTHX_ self, i, &datagram)) XSRETURN_EMPTY;
    PWP_SP_AGAIN;
    EXTEND(SP, 3);
    mPUSHp(datagram.len ? (const char *)datagram.data : "", datagram.len);
    mPUSHp(datagram.address ? (const char *)datagram.address : "", datagram.address_len);
    PUSHs(boolSV(datagram.is_cut));
  }
