MODULE = Pipework    PACKAGE = Pipework::Pipe

void
_pair(SV *reader, SV *writer, ...)
  PREINIT:
    pwp_named capacity = {"capacity", NULL};
  CODE:
    pwp_hold(aTHX_ ax, items);
    pwp_take_named(aTHX_ cv, ax, 2, items, &capacity, 1);
    pwp_pipe_make(aTHX_ reader, writer, capacity.value);
    XSRETURN(2);

void
recv(pwp_object self, ...)
  PREINIT:
    pwp_named given[] = {{"max", NULL}, {"timeout", NULL}};
  CODE:
    pwp_take_named(aTHX_ cv, ax, 1, items, given, 2);
    PWP_PIPE_RETURN_SV(pwp_pipe_recv(aTHX_ self, given[0].value, given[1].value));

void
sysread(pwp_object self, SV *buffer, SV *len, SV *offset = &PL_sv_no)
  ALIAS:
    read = 1
    READ = 2
  CODE:
    PWP_PIPE_RETURN(pwp_pipe_read(aTHX_ self, buffer, len, offset, ix == 1));

void
READLINE(SV *self)
  PPCODE:
    self = pwp_pin(aTHX_ pwp_self(aTHX_ ax, items));
    if (GIMME_V == G_LIST) {
        AV *lines = (AV *)sv_2mortal((SV *)newAV());
        SV *line;
        SSize_t i;
        for (;;) {
            ENTER;
            line = pwp_pipe_readline(aTHX_ self);
            LEAVE;
            if (!line) break;
            av_push(lines, SvREFCNT_inc(line));
        }
        PWP_SP_AGAIN;
        EXTEND(SP, av_top_index(lines) + 1);
        for (i = 0; i <= av_top_index(lines); i++) {
            PUSHs(sv_2mortal(SvREFCNT_inc(AvARRAY(lines)[i])));
        }
    } else {
        PWP_PIPE_RETURN_SV(pwp_pipe_readline(aTHX_ self));
    }

bool
EOF(pwp_object self, ...)
  ALIAS:
    eof = 1
  CODE:
    PERL_UNUSED_VAR(ix);
    ENTER;
    RETVAL = pwp_pipe_eof(aTHX_ self);
    LEAVE;
  OUTPUT:
    RETVAL

void
send(pwp_object self, SV *data, ...)
  CODE:
    PWP_PIPE_RETURN(pwp_pipe_send(aTHX_ self, data, PWP_TIMEOUT(2)));

void
copy_to_fd(pwp_object self, SV *fd, ...)
  ALIAS:
    copy_from_fd = 1
  PREINIT:
    pwp_named given[] = {{"length", NULL}, {"timeout", NULL}};
  CODE:
    pwp_take_named(aTHX_ cv, ax, 2, items, given, 2);
    PWP_PIPE_RETURN(pwp_pipe_copy(aTHX_ self, fd, given[0].value, given[1].value, ix == 0));

bool
close(SV *self)
  ALIAS:
    CLOSE = 1
  CODE:
    PERL_UNUSED_VAR(ix);
    ENTER;
    RETVAL = pwp_pipe_close(aTHX_ self);
    LEAVE;
  OUTPUT:
    RETVAL

bool
close_with_error(pwp_object self, SV *reason = &PL_sv_undef)
  CODE:
    ENTER;
    RETVAL = pwp_pipe_close_with_error(aTHX_ self, reason);
    LEAVE;
  OUTPUT:
    RETVAL

void
error(SV *self)
  CODE:
    PWP_PIPE_RETURN_SV(pwp_pipe_reason(aTHX_ self));

void
buffered(SV *self)
  CODE:
    PWP_PIPE_RETURN(pwp_pipe_ask(aTHX_ self, PWP_PIPE_BUFFERED));

void
capacity(SV *self)
  CODE:
    PWP_PIPE_RETURN(pwp_pipe_ask(aTHX_ self, PWP_PIPE_CAPACITY));

bool
is_closed(SV *self)
  CODE:
    ENTER;
    RETVAL = pwp_pipe_ask(aTHX_ self, PWP_PIPE_IS_CLOSED) != 0;
    LEAVE;
  OUTPUT:
    RETVAL

bool
opened(SV *self)
  CODE:
    ENTER;
    RETVAL = pwp_pipe_ask(aTHX_ self, PWP_PIPE_CAPACITY) >= 0;
    LEAVE;
  OUTPUT:
    RETVAL
