MODULE = Pipework    PACKAGE = Pipework::FD

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
shed(SV *self, SV *listener, SV *max)
  CODE:
    self = pwp_self(aTHX_ ax, items);
    PWP_FD_RETURN_HELD(pwp_fd_reserve_shed(aTHX_ self, listener, max));

MODULE = Pipework    PACKAGE = Pipework::FD::Inbox

void
new(SV *class, SV *max, SV *max_bytes)
  CODE:
    PWP_FD_RETURN_SV(pwp_fd_inbox_new(aTHX_ class, max, max_bytes));

void
recv(SV *self, SV *socket, SV *seconds = NULL)
  CODE:
    self = pwp_self(aTHX_ ax, items);
    PWP_FD_RETURN_HELD(pwp_fd_inbox_recv(aTHX_ self, socket, seconds));

void
get(SV *self, SV *i)
  PPCODE:
  {
    pwk_datagram datagram;
    self = pwp_self(aTHX_ ax, items);
    if (!pwp_fd_inbox_get(aTHX_ self, i, &datagram)) XSRETURN_EMPTY;
    PWP_SP_AGAIN;
    EXTEND(SP, 3);
    mPUSHp(datagram.len ? (const char *)datagram.data : "", datagram.len);
    mPUSHp(datagram.address ? (const char *)datagram.address : "", datagram.address_len);
    PUSHs(boolSV(datagram.is_cut));
  }
