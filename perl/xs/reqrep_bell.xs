# Eventfds of room reqrep that are rung by hand; a client's own is that of replies. The number of
# an alias is the class's: see src/reqrep.h.

MODULE = Pipework    PACKAGE = Pipework::ReqRep

PROTOTYPES: DISABLE

int
eventfd(self)
    SV *self
  ALIAS:
    Pipework::ReqRep::Int::eventfd = 2
  CODE:
    RETVAL = pwp_bell_create(aTHX_ self, ix, pwp_request_bell);
  OUTPUT:
    RETVAL

int
reply_eventfd(self)
    SV *self
  ALIAS:
    Pipework::ReqRep::Client::eventfd = 1
    Pipework::ReqRep::Int::reply_eventfd = 2
    Pipework::ReqRep::Int::Client::eventfd = 3
  CODE:
    RETVAL = pwp_bell_create(aTHX_ self, ix, pwp_reply_bell);
  OUTPUT:
    RETVAL

void
eventfd_set(self, fd)
    SV *self = pwp_self(aTHX_ ax, items);
    SV *fd
  ALIAS:
    Pipework::ReqRep::Client::req_eventfd_set = 1
    Pipework::ReqRep::Int::eventfd_set = 2
    Pipework::ReqRep::Int::Client::req_eventfd_set = 3
  CODE:
    pwp_bell_set(aTHX_ self, ix, pwp_request_bell, fd);

void
reply_eventfd_set(self, fd)
    SV *self = pwp_self(aTHX_ ax, items);
    SV *fd
  ALIAS:
    Pipework::ReqRep::Client::eventfd_set = 1
    Pipework::ReqRep::Int::reply_eventfd_set = 2
    Pipework::ReqRep::Int::Client::eventfd_set = 3
  CODE:
    pwp_bell_set(aTHX_ self, ix, pwp_reply_bell, fd);

int
fileno(self)
    SV *self
  ALIAS:
    Pipework::ReqRep::Client::req_fileno = 1
    Pipework::ReqRep::Int::fileno = 2
    Pipework::ReqRep::Int::Client::req_fileno = 3
  CODE:
    RETVAL = pwp_bell_fileno(aTHX_ self, ix, pwp_request_bell);
  OUTPUT:
    RETVAL

int
reply_fileno(self)
    SV *self
  ALIAS:
    Pipework::ReqRep::Client::fileno = 1
    Pipework::ReqRep::Int::reply_fileno = 2
    Pipework::ReqRep::Int::Client::fileno = 3
  CODE:
    RETVAL = pwp_bell_fileno(aTHX_ self, ix, pwp_reply_bell);
  OUTPUT:
    RETVAL

SV *
eventfd_consume(self)
    SV *self
  ALIAS:
    Pipework::ReqRep::Int::eventfd_consume = 2
  CODE:
    RETVAL = SvREFCNT_inc(pwp_bell_consume(aTHX_ self, ix, pwp_request_bell));
  OUTPUT:
    RETVAL

SV *
reply_eventfd_consume(self)
    SV *self
  ALIAS:
    Pipework::ReqRep::Client::eventfd_consume = 1
    Pipework::ReqRep::Int::reply_eventfd_consume = 2
    Pipework::ReqRep::Int::Client::eventfd_consume = 3
  CODE:
    RETVAL = SvREFCNT_inc(pwp_bell_consume(aTHX_ self, ix, pwp_reply_bell));
  OUTPUT:
    RETVAL

void
notify(self)
    SV *self
  ALIAS:
    Pipework::ReqRep::Client::notify = 1
    Pipework::ReqRep::Int::notify = 2
    Pipework::ReqRep::Int::Client::notify = 3
  CODE:
    pwp_bell_ring(aTHX_ self, ix, pwp_request_bell);

void
reply_notify(self)
    SV *self
  ALIAS:
    Pipework::ReqRep::Int::reply_notify = 2
  CODE:
    pwp_bell_ring(aTHX_ self, ix, pwp_reply_bell);
