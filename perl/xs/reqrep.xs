# What the four classes of room reqrep have in common, and how their objects are made. The number of
# an alias is the class's: see src/reqrep.h.

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
    RETVAL = pwk_segment_len(pwp_subject_of(aTHX_ self, ix).channel->segment);
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
    RETVAL = pwk_segment_len(pwp_subject_of(aTHX_ self, ix).channel->segment) == 0;
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
    RETVAL = pwk_segment_path(pwp_subject_of(aTHX_ self, ix).channel->segment);
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
    pwk_segment *segment = pwp_subject_of(aTHX_ self, ix).channel->segment;
    RETVAL = pwk_segment_path(segment) ? -1 : pwk_segment_fd(segment);
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
