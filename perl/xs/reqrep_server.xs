# The answering end of room reqrep. The number of an alias is the class's: see src/reqrep.h.

MODULE = Pipework    PACKAGE = Pipework::ReqRep

PROTOTYPES: DISABLE

void
sync(self)
    SV *self
  ALIAS:
    Pipework::ReqRep::Int::sync = 2
  CODE:
    pwp_reqrep_sync(aTHX_ self, ix);

void
unlink(self, path = NULL)
    SV *self = pwp_self(aTHX_ ax, items);
    SV *path
  ALIAS:
    Pipework::ReqRep::Int::unlink = 2
  CODE:
    pwp_reqrep_unlink(aTHX_ self, ix, path);

void
recv(self)
    SV *self
  ALIAS:
    Pipework::ReqRep::Int::recv = 2
  CODE:
    XSRETURN(pwp_server_recv(aTHX_ ax, self, ix));

void
recv_wait(self, seconds = NULL)
    SV *self = pwp_self(aTHX_ ax, items);
    SV *seconds
  ALIAS:
    Pipework::ReqRep::Int::recv_wait = 2
  CODE:
    XSRETURN(pwp_server_recv_wait(aTHX_ ax, self, ix, seconds));

void
recv_multi(self, max)
    SV *self = pwp_self(aTHX_ ax, items);
    SV *max
  ALIAS:
    Pipework::ReqRep::Int::recv_multi = 2
  CODE:
    XSRETURN(pwp_server_drain(aTHX_ ax, self, ix, max));

void
recv_wait_multi(self, max, seconds = NULL)
    SV *self = pwp_self(aTHX_ ax, items);
    SV *max
    SV *seconds
  ALIAS:
    Pipework::ReqRep::Int::recv_wait_multi = 2
  CODE:
    XSRETURN(pwp_server_recv_wait_multi(aTHX_ ax, self, ix, max, seconds));

void
drain(self, max = NULL)
    SV *self = pwp_self(aTHX_ ax, items);
    SV *max
  ALIAS:
    Pipework::ReqRep::Int::drain = 2
  CODE:
    XSRETURN(pwp_server_drain(aTHX_ ax, self, ix, max));

void
reply(self, id, response, seconds = NULL)
    SV *self = pwp_self(aTHX_ ax, items);
    SV *id
    SV *response
    SV *seconds
  ALIAS:
    Pipework::ReqRep::Int::reply = 2
  CODE:
    XSRETURN(pwp_server_reply(aTHX_ ax, self, ix, id, response, seconds));

void
part(self, id, bytes, seconds = NULL)
    SV *self = pwp_self(aTHX_ ax, items);
    SV *id
    SV *bytes
    SV *seconds
  CODE:
    XSRETURN(pwp_server_part(aTHX_ ax, self, PWP_SERVER, id, bytes, seconds));

void
flush(self, id, seconds = NULL)
    SV *self = pwp_self(aTHX_ ax, items);
    SV *id
    SV *seconds
  CODE:
    XSRETURN(pwp_server_flush(aTHX_ ax, self, id, seconds));

void
fail(self, id, reason = NULL)
    SV *self = pwp_self(aTHX_ ax, items);
    SV *id
    SV *reason
  ALIAS:
    Pipework::ReqRep::Int::fail = 2
  CODE:
    XSRETURN(pwp_server_fail(aTHX_ ax, self, ix, id, reason));

void
is_wanted(self, id)
    SV *self = pwp_self(aTHX_ ax, items);
    SV *id
  ALIAS:
    Pipework::ReqRep::Int::is_wanted = 2
  CODE:
    XSRETURN(pwp_server_is_wanted(aTHX_ ax, self, ix, id));

SV *
redeliveries(self, id)
    SV *self = pwp_self(aTHX_ ax, items);
    SV *id
  ALIAS:
    Pipework::ReqRep::Int::redeliveries = 2
  CODE:
    RETVAL = SvREFCNT_inc(pwp_server_redeliveries(aTHX_ self, ix, id));
  OUTPUT:
    RETVAL

void
adopt(self, id)
    SV *self = pwp_self(aTHX_ ax, items);
    SV *id
  ALIAS:
    Pipework::ReqRep::Int::adopt = 2
  CODE:
    XSRETURN(pwp_server_adopt(aTHX_ ax, self, ix, id));

void
clear(self)
    SV *self
  ALIAS:
    Pipework::ReqRep::Int::clear = 2
  CODE:
    pwp_server_clear(aTHX_ self, ix);

void
stop(self)
    SV *self
  ALIAS:
    Pipework::ReqRep::Int::stop = 2
  CODE:
    pwp_server_stop(aTHX_ self, ix);
