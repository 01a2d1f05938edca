# Module reqrep: servers, clients and streams. Each function is written here once. When the library
# is loaded, pwp_reqrep_share gives it to the other classes that have it, each copy with the number
# of its class, PWP_ROLE.

MODULE = Pipework    PACKAGE = Pipework::ReqRep

PROTOTYPES: DISABLE

BOOT:
    pwp_reqrep_share(aTHX);

# ---------------------------------------------------------------- making and opening segments

void
new(pwp_held class, SV *path, SV *req_cap, SV *resp_slots, SV *resp_size, SV *arena = NULL, SV *mode = NULL)
  CODE:
  {
    pwp_sizes sizes = {req_cap, resp_slots, resp_size, arena, mode};
    PWP_GIVE(pwp_reqrep_new(aTHX_ class, PWP_ROLE, path, &sizes));
  }

void
new_memfd(pwp_held class, SV *name, SV *req_cap, SV *resp_slots, SV *resp_size, SV *arena = NULL)
  CODE:
  {
    pwp_sizes sizes = {req_cap, resp_slots, resp_size, arena, NULL};
    PWP_GIVE(pwp_reqrep_new_memfd(aTHX_ class, PWP_ROLE, name, &sizes));
  }

void
new_from_fd(pwp_held class, SV *fd)
  CODE:
    PWP_GIVE(pwp_reqrep_new_from_fd(aTHX_ class, PWP_ROLE, fd));

void
create(pwp_held class, ...)
  CODE:
    PWP_GIVE(pwp_reqrep_create(aTHX_ cv, ax, items, class, PWP_ROLE, false));

void
open_or_create(pwp_held class, ...)
  CODE:
    PWP_GIVE(pwp_reqrep_create(aTHX_ cv, ax, items, class, PWP_ROLE, true));

void
open(pwp_held class, ...)
  CODE:
    PWP_GIVE(pwp_reqrep_open(aTHX_ cv, ax, items, class, PWP_ROLE));

void
DESTROY(SV *self)
  CODE:
    pwp_destroy(aTHX_ self, &pwp_reqrep_classes[PWP_ROLE]);

# ---------------------------------------------------------------- the segment, for all four classes

void
size(SV *self)
  CODE:
    PWP_GIVE_NUMBER(pwk_segment_len(PWP_CHANNEL->segment));

void
is_empty(SV *self)
  CODE:
    PWP_GIVE(boolSV(pwk_segment_len(PWP_CHANNEL->segment) == 0));

void
capacity(SV *self)
  CODE:
    PWP_GIVE_NUMBER(PWP_CHANNEL->geometry.queue);

void
resp_slots(SV *self)
  CODE:
    PWP_GIVE_NUMBER(PWP_CHANNEL->geometry.slots);

void
resp_size(SV *self)
  CODE:
    PWP_GIVE_NUMBER(PWP_CHANNEL->geometry.reply_bytes);

const char *
path(SV *self)
  CODE:
    RETVAL = pwk_segment_path(PWP_CHANNEL->segment);
  OUTPUT:
    RETVAL

int
memfd(SV *self)
  CODE:
  {
    pwk_segment *segment = PWP_CHANNEL->segment;
    RETVAL = pwk_segment_path(segment) ? -1 : pwk_segment_fd(segment);
  }
  OUTPUT:
    RETVAL

void
stats(SV *self)
  CODE:
    PWP_GIVE(pwp_reqrep_stats(aTHX_ self, PWP_ROLE));

void
audit(SV *self)
  CODE:
    PWP_GIVE(pwp_reqrep_audit(aTHX_ self, PWP_ROLE));

void
geometry(pwp_object self, SV *path = NULL)
  CODE:
    PWP_GIVE(pwp_reqrep_geometry(aTHX_ self, PWP_ROLE, path));

void
members(SV *self)
  CODE:
    XSRETURN(pwp_reqrep_members(aTHX_ ax, self, PWP_ROLE));

void
recover(SV *self)
  CODE:
    PWP_GIVE_NUMBER(pwp_reqrep_recover(aTHX_ self, PWP_ROLE));

void
blob(pwp_object self, SV *len)
  CODE:
    PWP_GIVE(pwp_reqrep_blob(aTHX_ self, PWP_ROLE, len));

void
blob_from(pwp_object self, SV *bytes)
  CODE:
    PWP_GIVE(pwp_reqrep_blob_from(aTHX_ self, PWP_ROLE, bytes));

# In Perl, doorbell and send_doorbell make a handle of it.
int
_doorbell(pwp_object self, bool is_for_sending = false)
  CODE:
    RETVAL = pwp_reqrep_doorbell(aTHX_ self, PWP_ROLE, is_for_sending);
  OUTPUT:
    RETVAL

# ---------------------------------------------------------------- servers

void
sync(SV *self)
  CODE:
    pwp_reqrep_sync(aTHX_ self, PWP_ROLE);

void
unlink(pwp_object self, SV *path = NULL)
  CODE:
    pwp_reqrep_unlink(aTHX_ self, PWP_ROLE, path);

void
recv(SV *self)
  CODE:
    XSRETURN(pwp_server_recv(aTHX_ ax, self, PWP_ROLE));

void
recv_wait(pwp_object self, ...)
  CODE:
    XSRETURN(pwp_server_recv_wait(aTHX_ ax, self, PWP_ROLE, PWP_TIMEOUT(1)));

void
recv_multi(pwp_object self, SV *max)
  CODE:
    XSRETURN(pwp_server_drain(aTHX_ ax, self, PWP_ROLE, max));

void
recv_wait_multi(pwp_object self, SV *max, ...)
  CODE:
    XSRETURN(pwp_server_recv_wait_multi(aTHX_ ax, self, PWP_ROLE, max, PWP_TIMEOUT(2)));

void
drain(pwp_object self, SV *max = NULL)
  CODE:
    XSRETURN(pwp_server_drain(aTHX_ ax, self, PWP_ROLE, max));

void
blobs(pwp_object self, SV *id)
  CODE:
    XSRETURN(pwp_server_blobs(aTHX_ ax, self, PWP_ROLE, id));

void
reply(pwp_object self, SV *id, SV *response, ...)
  CODE:
  {
    pwp_with with = PWP_WITH(3, true);
    XSRETURN(pwp_server_reply(aTHX_ ax, self, PWP_ROLE, id, response, &with));
  }

void
part(pwp_object self, SV *id, SV *bytes, ...)
  CODE:
  {
    pwp_with with = PWP_WITH(3, true);
    XSRETURN(pwp_server_part(aTHX_ ax, self, PWP_ROLE, id, bytes, &with));
  }

void
flush(pwp_object self, SV *id, ...)
  CODE:
    XSRETURN(pwp_server_flush(aTHX_ ax, self, id, PWP_TIMEOUT(2)));

void
fail(pwp_object self, SV *id, SV *reason = NULL)
  CODE:
    XSRETURN(pwp_server_fail(aTHX_ ax, self, PWP_ROLE, id, reason));

void
is_wanted(pwp_object self, SV *id)
  CODE:
    XSRETURN(pwp_server_is_wanted(aTHX_ ax, self, PWP_ROLE, id));

void
redeliveries(pwp_object self, SV *id)
  CODE:
    PWP_GIVE(pwp_server_redeliveries(aTHX_ self, PWP_ROLE, id));

void
adopt(pwp_object self, SV *id)
  CODE:
    XSRETURN(pwp_server_adopt(aTHX_ ax, self, PWP_ROLE, id));

void
clear(SV *self)
  CODE:
    pwp_server_clear(aTHX_ self, PWP_ROLE);

void
stop(SV *self)
  CODE:
    pwp_server_stop(aTHX_ self, PWP_ROLE);

MODULE = Pipework    PACKAGE = Pipework::ReqRep::Int

void
new(pwp_held class, SV *path, SV *req_cap, SV *resp_slots, SV *mode = NULL)
  CODE:
  {
    pwp_sizes sizes = {req_cap, resp_slots, NULL, NULL, mode};
    PWP_GIVE(pwp_reqrep_new(aTHX_ class, PWP_INT_SERVER, path, &sizes));
  }

void
new_memfd(pwp_held class, SV *name, SV *req_cap, SV *resp_slots)
  CODE:
  {
    pwp_sizes sizes = {req_cap, resp_slots, NULL, NULL, NULL};
    PWP_GIVE(pwp_reqrep_new_memfd(aTHX_ class, PWP_INT_SERVER, name, &sizes));
  }

# ---------------------------------------------------------------- clients and their streams

MODULE = Pipework    PACKAGE = Pipework::ReqRep::Client

void
new(pwp_held class, SV *path)
  CODE:
    PWP_GIVE(pwp_reqrep_new_client(aTHX_ class, PWP_ROLE, path));

void
req(pwp_object self, SV *data, ...)
  CODE:
  {
    pwp_with with = PWP_WITH(2, false);
    XSRETURN(pwp_client_req(aTHX_ ax, self, PWP_ROLE, data, &with, PWP_AS_ORIGINAL));
  }

void
req_wait(pwp_object self, SV *data, SV *seconds, ...)
  CODE:
  {
    pwp_with with = PWP_WITH(2, true);
    PERL_UNUSED_VAR(seconds);
    XSRETURN(pwp_client_req(aTHX_ ax, self, PWP_ROLE, data, &with, PWP_AS_ORIGINAL));
  }

void
call(pwp_object self, SV *data, ...)
  CODE:
  {
    pwp_with with = PWP_WITH(2, true);
    XSRETURN(pwp_client_req(aTHX_ ax, self, PWP_ROLE, data, &with, PWP_THROWING));
  }

void
call_message(pwp_object self, SV *data, ...)
  CODE:
  {
    pwp_with with = PWP_WITH(2, true);
    XSRETURN(pwp_client_req(aTHX_ ax, self, PWP_ROLE, data, &with, PWP_MESSAGE));
  }

void
send(pwp_object self, SV *data, ...)
  CODE:
  {
    pwp_with with = PWP_WITH(2, false);
    XSRETURN(pwp_client_send(aTHX_ ax, self, PWP_ROLE, data, &with, false));
  }

void
send_notify(pwp_object self, SV *data, ...)
  CODE:
  {
    pwp_with with = PWP_WITH(2, false);
    XSRETURN(pwp_client_send(aTHX_ ax, self, PWP_ROLE, data, &with, true));
  }

void
send_wait(pwp_object self, SV *data, ...)
  CODE:
  {
    pwp_with with = PWP_WITH(2, true);
    XSRETURN(pwp_client_send_wait(aTHX_ ax, self, PWP_ROLE, data, &with, false));
  }

void
send_wait_notify(pwp_object self, SV *data, ...)
  CODE:
  {
    pwp_with with = PWP_WITH(2, true);
    XSRETURN(pwp_client_send_wait(aTHX_ ax, self, PWP_ROLE, data, &with, true));
  }

void
get(pwp_object self, SV *id)
  CODE:
    XSRETURN(pwp_client_get(aTHX_ ax, self, PWP_ROLE, id));

void
get_wait(pwp_object self, SV *id, ...)
  CODE:
    XSRETURN(pwp_client_get_wait(aTHX_ ax, self, PWP_ROLE, id, PWP_TIMEOUT(2), false));

void
get_message(pwp_object self, SV *id, ...)
  CODE:
    XSRETURN(pwp_client_get_wait(aTHX_ ax, self, PWP_ROLE, id, PWP_TIMEOUT(2), true));

void
recv_any(pwp_object self, ...)
  CODE:
    XSRETURN(pwp_client_recv_any(aTHX_ ax, self, PWP_ROLE, PWP_TIMEOUT(1), false));

void
recv_any_message(pwp_object self, ...)
  CODE:
    XSRETURN(pwp_client_recv_any(aTHX_ ax, self, PWP_ROLE, PWP_TIMEOUT(1), true));

void
stream(pwp_object self, SV *data, ...)
  CODE:
  {
    pwp_with with = PWP_WITH(2, true);
    PWP_GIVE(pwp_client_stream(aTHX_ self, PWP_ROLE, data, &with));
  }

void
cancel(pwp_object self, SV *id)
  CODE:
    pwp_client_cancel(aTHX_ self, PWP_ROLE, id);

void
forget(pwp_object self, SV *id)
  CODE:
    PWP_GIVE(boolSV(pwp_client_forget(aTHX_ self, PWP_ROLE, id)));

void
pending(SV *self)
  CODE:
    PWP_GIVE_NUMBER(pwk_client_pending(PWP_CHANNEL->client));

MODULE = Pipework    PACKAGE = Pipework::ReqRep::Stream

void
next(pwp_object self, ...)
  CODE:
    XSRETURN(pwp_stream_next(aTHX_ ax, self, PWP_TIMEOUT(1), false));

void
next_message(pwp_object self, ...)
  CODE:
    XSRETURN(pwp_stream_next(aTHX_ ax, self, PWP_TIMEOUT(1), true));

void
DESTROY(SV *self)
  CODE:
    pwp_destroy(aTHX_ self, &pwp_stream_class);

# ---------------------------------------------------------------- blobs

MODULE = Pipework    PACKAGE = Pipework::ReqRep::BlobMut

void
write(pwp_object self, SV *offset, SV *bytes)
  CODE:
    pwp_draft_write(aTHX_ self, offset, bytes);

void
length(SV *self)
  CODE:
    PWP_GIVE_NUMBER(pwp_draft_length(aTHX_ self));

void
freeze(SV *self)
  CODE:
    PWP_GIVE(pwp_draft_freeze(aTHX_ self));

void
DESTROY(SV *self)
  CODE:
    pwp_destroy(aTHX_ self, &pwp_draft_class);

MODULE = Pipework    PACKAGE = Pipework::ReqRep::Blob

void
length(SV *self)
  CODE:
    PWP_GIVE_NUMBER(pwp_blob_length(aTHX_ self));

void
bytes(SV *self)
  CODE:
    PWP_GIVE(pwp_blob_copy(aTHX_ self));

void
substr(pwp_object self, SV *offset, SV *count = NULL)
  CODE:
    PWP_GIVE(pwp_blob_substr(aTHX_ self, offset, count));

void
map(SV *self)
  CODE:
    PWP_GIVE(pwp_blob_map(aTHX_ self));

void
is_copied(SV *self)
  CODE:
    PWP_GIVE(boolSV(pwp_blob_is_copied(aTHX_ self)));

void
check(SV *self)
  CODE:
    pwp_blob_check(aTHX_ self);
    PWP_GIVE(&PL_sv_yes);

void
DESTROY(SV *self)
  CODE:
    pwp_destroy(aTHX_ self, &pwp_blob_class);

# ---------------------------------------------------------------- eventfds that programs ring

MODULE = Pipework    PACKAGE = Pipework::ReqRep

# A server's are named after requests, and a client's after replies: so the aliases.

int
eventfd(SV *self)
  CODE:
    RETVAL = pwp_bell_create(aTHX_ self, PWP_ROLE, pwp_request_bell);
  OUTPUT:
    RETVAL

int
reply_eventfd(SV *self)
  ALIAS:
    Pipework::ReqRep::Client::eventfd = 1
  CODE:
    RETVAL = pwp_bell_create(aTHX_ self, ix, pwp_reply_bell);
  OUTPUT:
    RETVAL

void
eventfd_set(pwp_object self, SV *fd)
  ALIAS:
    Pipework::ReqRep::Client::req_eventfd_set = 1
  CODE:
    pwp_bell_set(aTHX_ self, ix, pwp_request_bell, fd);

void
reply_eventfd_set(pwp_object self, SV *fd)
  ALIAS:
    Pipework::ReqRep::Client::eventfd_set = 1
  CODE:
    pwp_bell_set(aTHX_ self, ix, pwp_reply_bell, fd);

int
fileno(SV *self)
  ALIAS:
    Pipework::ReqRep::Client::req_fileno = 1
  CODE:
    RETVAL = PWP_CHANNEL->requests.number;
    PERL_UNUSED_VAR(ix);
  OUTPUT:
    RETVAL

int
reply_fileno(SV *self)
  ALIAS:
    Pipework::ReqRep::Client::fileno = 1
  CODE:
    RETVAL = PWP_CHANNEL->replies.number;
    PERL_UNUSED_VAR(ix);
  OUTPUT:
    RETVAL

void
eventfd_consume(SV *self)
  CODE:
    PWP_GIVE(pwp_bell_consume(aTHX_ self, PWP_ROLE, pwp_request_bell));

void
reply_eventfd_consume(SV *self)
  ALIAS:
    Pipework::ReqRep::Client::eventfd_consume = 1
  CODE:
    PWP_GIVE(pwp_bell_consume(aTHX_ self, ix, pwp_reply_bell));

void
notify(SV *self)
  ALIAS:
    Pipework::ReqRep::Client::notify = 1
  CODE:
    pwp_channel_ring(PWP_CHANNEL, pwp_request_bell);
    PERL_UNUSED_VAR(ix);

void
reply_notify(SV *self)
  CODE:
    pwp_channel_ring(PWP_CHANNEL, pwp_reply_bell);
