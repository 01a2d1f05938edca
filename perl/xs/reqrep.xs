# The four classes of room reqrep. The number of an alias is the class's: see src/reqrep.h.

MODULE = Pipework    PACKAGE = Pipework::ReqRep

PROTOTYPES: DISABLE

# ---------------------------------------------------------------- how objects are made

SV *
new(class, path, req_cap, resp_slots, resp_size, arena = NULL, mode = NULL)
    SV *class
    SV *path
    SV *req_cap
    SV *resp_slots
    SV *resp_size
    SV *arena
    SV *mode
  CODE:
  {
    pwp_sizes sizes = {req_cap, resp_slots, resp_size, arena, mode};
    pwp_hold(aTHX_ ax, items);
    RETVAL = SvREFCNT_inc(pwp_reqrep_new(aTHX_ class, PWP_SERVER, path, &sizes));
  }
  OUTPUT:
    RETVAL

SV *
new_memfd(class, name, req_cap, resp_slots, resp_size, arena = NULL)
    SV *class
    SV *name
    SV *req_cap
    SV *resp_slots
    SV *resp_size
    SV *arena
  CODE:
  {
    pwp_sizes sizes = {req_cap, resp_slots, resp_size, arena, NULL};
    pwp_hold(aTHX_ ax, items);
    RETVAL = SvREFCNT_inc(pwp_reqrep_new_memfd(aTHX_ class, PWP_SERVER, name, &sizes));
  }
  OUTPUT:
    RETVAL

SV *
new_from_fd(class, fd)
    SV *class
    SV *fd
  ALIAS:
    Pipework::ReqRep::Client::new_from_fd = 1
    Pipework::ReqRep::Int::new_from_fd = 2
    Pipework::ReqRep::Int::Client::new_from_fd = 3
  CODE:
    pwp_hold(aTHX_ ax, items);
    RETVAL = SvREFCNT_inc(pwp_reqrep_open_fd(aTHX_ class, ix, fd));
  OUTPUT:
    RETVAL

void
DESTROY(self)
    SV *self
  ALIAS:
    Pipework::ReqRep::Client::DESTROY = 1
    Pipework::ReqRep::Int::DESTROY = 2
    Pipework::ReqRep::Int::Client::DESTROY = 3
  CODE:
    pwp_destroy(aTHX_ self, &pwp_reqrep_classes[ix]);

# ---------------------------------------------------------------- of all four

UV
size(self)
    SV *self
  ALIAS:
    Pipework::ReqRep::Client::size = 1
    Pipework::ReqRep::Int::size = 2
    Pipework::ReqRep::Int::Client::size = 3
  CODE:
    RETVAL = pw_segment_len(pwp_subject_of(aTHX_ self, ix).channel->segment);
  OUTPUT:
    RETVAL

bool
is_empty(self)
    SV *self
  ALIAS:
    Pipework::ReqRep::Client::is_empty = 1
    Pipework::ReqRep::Int::is_empty = 2
    Pipework::ReqRep::Int::Client::is_empty = 3
  CODE:
    RETVAL = pw_segment_len(pwp_subject_of(aTHX_ self, ix).channel->segment) == 0;
  OUTPUT:
    RETVAL

UV
capacity(self)
    SV *self
  ALIAS:
    Pipework::ReqRep::Client::capacity = 1
    Pipework::ReqRep::Int::capacity = 2
    Pipework::ReqRep::Int::Client::capacity = 3
  CODE:
    RETVAL = pwp_subject_of(aTHX_ self, ix).channel->geometry.queue;
  OUTPUT:
    RETVAL

UV
resp_slots(self)
    SV *self
  ALIAS:
    Pipework::ReqRep::Client::resp_slots = 1
    Pipework::ReqRep::Int::resp_slots = 2
    Pipework::ReqRep::Int::Client::resp_slots = 3
  CODE:
    RETVAL = pwp_subject_of(aTHX_ self, ix).channel->geometry.slots;
  OUTPUT:
    RETVAL

UV
resp_size(self)
    SV *self
  ALIAS:
    Pipework::ReqRep::Client::resp_size = 1
    Pipework::ReqRep::Int::resp_size = 2
    Pipework::ReqRep::Int::Client::resp_size = 3
  CODE:
    RETVAL = pwp_subject_of(aTHX_ self, ix).channel->geometry.reply_bytes;
  OUTPUT:
    RETVAL

const char *
path(self)
    SV *self
  ALIAS:
    Pipework::ReqRep::Client::path = 1
    Pipework::ReqRep::Int::path = 2
    Pipework::ReqRep::Int::Client::path = 3
  CODE:
    RETVAL = pw_segment_path(pwp_subject_of(aTHX_ self, ix).channel->segment);
  OUTPUT:
    RETVAL

int
memfd(self)
    SV *self
  ALIAS:
    Pipework::ReqRep::Client::memfd = 1
    Pipework::ReqRep::Int::memfd = 2
    Pipework::ReqRep::Int::Client::memfd = 3
  CODE:
  {
    pw_segment *segment = pwp_subject_of(aTHX_ self, ix).channel->segment;
    RETVAL = pw_segment_path(segment) ? -1 : pw_segment_fd(segment);
  }
  OUTPUT:
    RETVAL

SV *
stats(self)
    SV *self
  ALIAS:
    Pipework::ReqRep::Client::stats = 1
    Pipework::ReqRep::Int::stats = 2
    Pipework::ReqRep::Int::Client::stats = 3
  CODE:
    RETVAL = SvREFCNT_inc(pwp_reqrep_stats(aTHX_ self, ix));
  OUTPUT:
    RETVAL

SV *
audit(self)
    SV *self
  ALIAS:
    Pipework::ReqRep::Client::audit = 1
    Pipework::ReqRep::Int::audit = 2
    Pipework::ReqRep::Int::Client::audit = 3
  CODE:
    RETVAL = SvREFCNT_inc(pwp_reqrep_audit(aTHX_ self, ix));
  OUTPUT:
    RETVAL

SV *
geometry(self, path = NULL)
    SV *self = pwp_self(aTHX_ ax, items);
    SV *path
  ALIAS:
    Pipework::ReqRep::Client::geometry = 1
    Pipework::ReqRep::Int::geometry = 2
    Pipework::ReqRep::Int::Client::geometry = 3
  CODE:
    RETVAL = SvREFCNT_inc(pwp_reqrep_geometry(aTHX_ self, ix, path));
  OUTPUT:
    RETVAL

void
members(self)
    SV *self
  ALIAS:
    Pipework::ReqRep::Client::members = 1
    Pipework::ReqRep::Int::members = 2
    Pipework::ReqRep::Int::Client::members = 3
  CODE:
    XSRETURN(pwp_reqrep_members(aTHX_ ax, self, ix));

UV
recover(self)
    SV *self
  ALIAS:
    Pipework::ReqRep::Client::recover = 1
    Pipework::ReqRep::Int::recover = 2
    Pipework::ReqRep::Int::Client::recover = 3
  CODE:
    RETVAL = pwp_reqrep_recover(aTHX_ self, ix);
  OUTPUT:
    RETVAL

# In Perl, doorbell and send_doorbell make a handle of it.
int
_doorbell(self, is_for_sending = false)
    SV *self = pwp_self(aTHX_ ax, items);
    bool is_for_sending
  ALIAS:
    Pipework::ReqRep::Client::_doorbell = 1
    Pipework::ReqRep::Int::_doorbell = 2
    Pipework::ReqRep::Int::Client::_doorbell = 3
  CODE:
    RETVAL = pwp_reqrep_doorbell(aTHX_ self, ix, is_for_sending);
  OUTPUT:
    RETVAL

# ---------------------------------------------------------------- servers

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

# ---------------------------------------------------------------- eventfds that are rung by hand
#
# A client's own eventfd is that of replies.

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

# ---------------------------------------------------------------- servers of numbers

MODULE = Pipework    PACKAGE = Pipework::ReqRep::Int

SV *
new(class, path, req_cap, resp_slots, mode = NULL)
    SV *class
    SV *path
    SV *req_cap
    SV *resp_slots
    SV *mode
  CODE:
  {
    pwp_sizes sizes = {req_cap, resp_slots, NULL, NULL, mode};
    pwp_hold(aTHX_ ax, items);
    RETVAL = SvREFCNT_inc(pwp_reqrep_new(aTHX_ class, PWP_INT_SERVER, path, &sizes));
  }
  OUTPUT:
    RETVAL

SV *
new_memfd(class, name, req_cap, resp_slots)
    SV *class
    SV *name
    SV *req_cap
    SV *resp_slots
  CODE:
  {
    pwp_sizes sizes = {req_cap, resp_slots, NULL, NULL, NULL};
    pwp_hold(aTHX_ ax, items);
    RETVAL = SvREFCNT_inc(pwp_reqrep_new_memfd(aTHX_ class, PWP_INT_SERVER, name, &sizes));
  }
  OUTPUT:
    RETVAL

# ---------------------------------------------------------------- clients

MODULE = Pipework    PACKAGE = Pipework::ReqRep::Client

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
