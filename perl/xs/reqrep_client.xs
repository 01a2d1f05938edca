# The calling end of room reqrep, and its streams. The number of an alias is the class's: see
# src/reqrep.h.

MODULE = Pipework    PACKAGE = Pipework::ReqRep::Client

PROTOTYPES: DISABLE

SV *
new(class, path, any_owner = NULL)
    SV *class
    SV *path
    SV *any_owner
  ALIAS:
    new = 1
    Pipework::ReqRep::Int::Client::new = 3
  CODE:
    pwp_hold(aTHX_ ax, items);
    RETVAL = SvREFCNT_inc(pwp_reqrep_open(aTHX_ class, ix, path, any_owner));
  OUTPUT:
    RETVAL

void
req(self, data)
    SV *self = pwp_self(aTHX_ ax, items);
    SV *data
  ALIAS:
    req = 1
    Pipework::ReqRep::Int::Client::req = 3
  CODE:
    XSRETURN(pwp_client_req(aTHX_ ax, self, ix, data, NULL, false));

void
req_wait(self, data, seconds)
    SV *self = pwp_self(aTHX_ ax, items);
    SV *data
    SV *seconds
  ALIAS:
    req_wait = 1
    Pipework::ReqRep::Int::Client::req_wait = 3
  CODE:
    XSRETURN(pwp_client_req(aTHX_ ax, self, ix, data, seconds, false));

void
call(self, data, seconds = NULL)
    SV *self = pwp_self(aTHX_ ax, items);
    SV *data
    SV *seconds
  ALIAS:
    call = 1
    Pipework::ReqRep::Int::Client::call = 3
  CODE:
    XSRETURN(pwp_client_req(aTHX_ ax, self, ix, data, seconds, true));

void
send(self, data)
    SV *self = pwp_self(aTHX_ ax, items);
    SV *data
  ALIAS:
    send = 1
    Pipework::ReqRep::Int::Client::send = 3
  CODE:
    XSRETURN(pwp_client_send(aTHX_ ax, self, ix, data, false));

void
send_notify(self, data)
    SV *self = pwp_self(aTHX_ ax, items);
    SV *data
  ALIAS:
    send_notify = 1
    Pipework::ReqRep::Int::Client::send_notify = 3
  CODE:
    XSRETURN(pwp_client_send(aTHX_ ax, self, ix, data, true));

void
send_wait(self, data, seconds = NULL)
    SV *self = pwp_self(aTHX_ ax, items);
    SV *data
    SV *seconds
  ALIAS:
    send_wait = 1
    Pipework::ReqRep::Int::Client::send_wait = 3
  CODE:
    XSRETURN(pwp_client_send_wait(aTHX_ ax, self, ix, data, seconds, false));

void
send_wait_notify(self, data, seconds = NULL)
    SV *self = pwp_self(aTHX_ ax, items);
    SV *data
    SV *seconds
  ALIAS:
    send_wait_notify = 1
    Pipework::ReqRep::Int::Client::send_wait_notify = 3
  CODE:
    XSRETURN(pwp_client_send_wait(aTHX_ ax, self, ix, data, seconds, true));

void
get(self, id)
    SV *self = pwp_self(aTHX_ ax, items);
    SV *id
  ALIAS:
    get = 1
    Pipework::ReqRep::Int::Client::get = 3
  CODE:
    XSRETURN(pwp_client_get(aTHX_ ax, self, ix, id));

void
get_wait(self, id, seconds = NULL)
    SV *self = pwp_self(aTHX_ ax, items);
    SV *id
    SV *seconds
  ALIAS:
    get_wait = 1
    Pipework::ReqRep::Int::Client::get_wait = 3
  CODE:
    XSRETURN(pwp_client_get_wait(aTHX_ ax, self, ix, id, seconds));

void
recv_any(self, seconds = NULL)
    SV *self = pwp_self(aTHX_ ax, items);
    SV *seconds
  ALIAS:
    recv_any = 1
    Pipework::ReqRep::Int::Client::recv_any = 3
  CODE:
    XSRETURN(pwp_client_recv_any(aTHX_ ax, self, ix, seconds));

SV *
stream(self, data, seconds = NULL)
    SV *self = pwp_self(aTHX_ ax, items);
    SV *data
    SV *seconds
  CODE:
    RETVAL = SvREFCNT_inc(pwp_client_stream(aTHX_ self, PWP_CLIENT, data, seconds));
  OUTPUT:
    RETVAL

void
cancel(self, id)
    SV *self = pwp_self(aTHX_ ax, items);
    SV *id
  ALIAS:
    cancel = 1
    Pipework::ReqRep::Int::Client::cancel = 3
  CODE:
    pwp_client_cancel(aTHX_ self, ix, id);

bool
forget(self, id)
    SV *self = pwp_self(aTHX_ ax, items);
    SV *id
  ALIAS:
    forget = 1
    Pipework::ReqRep::Int::Client::forget = 3
  CODE:
    RETVAL = pwp_client_forget(aTHX_ self, ix, id);
  OUTPUT:
    RETVAL

UV
pending(self)
    SV *self
  ALIAS:
    pending = 1
    Pipework::ReqRep::Int::Client::pending = 3
  CODE:
    RETVAL = pwp_client_pending(aTHX_ self, ix);
  OUTPUT:
    RETVAL

UV
redeliveries(self, times = NULL)
    SV *self = pwp_self(aTHX_ ax, items);
    SV *times
  ALIAS:
    redeliveries = 1
    Pipework::ReqRep::Int::Client::redeliveries = 3
  CODE:
    RETVAL = pwp_client_redeliveries(aTHX_ self, ix, times);
  OUTPUT:
    RETVAL

bool
needs_server(self, yes = NULL)
    SV *self = pwp_self(aTHX_ ax, items);
    SV *yes
  ALIAS:
    needs_server = 1
    Pipework::ReqRep::Int::Client::needs_server = 3
  CODE:
    RETVAL = pwp_client_needs_server(aTHX_ self, ix, yes);
  OUTPUT:
    RETVAL

# ---------------------------------------------------------------- streams

MODULE = Pipework    PACKAGE = Pipework::ReqRep::Stream

void
next(self, seconds = NULL)
    SV *self = pwp_self(aTHX_ ax, items);
    SV *seconds
  CODE:
    XSRETURN(pwp_stream_next(aTHX_ ax, self, seconds));

void
DESTROY(self)
    SV *self
  CODE:
    pwp_destroy(aTHX_ self, &pwp_stream_class);
