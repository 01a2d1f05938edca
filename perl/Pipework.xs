#include "src/pwperl.h"
#include "src/atomic.h"
#include "src/context.h"
#include "src/fd.h"

#define MY_CXT_KEY "Pipework::_guts"
typedef pwp_context my_cxt_t;
START_MY_CXT

pwp_context *pwp_get_context(pTHX) {
    dMY_CXT;
    return &MY_CXT;
}

MODULE = Pipework    PACKAGE = Pipework

PROTOTYPES: DISABLE

BOOT:
{
    MY_CXT_INIT;
    Zero(&MY_CXT, 1, my_cxt_t);
    if (pw_abi() != PW_ABI) croak("Pipework was built for another version of its C library");
}

#ifdef USE_ITHREADS

void
CLONE(...)
  CODE:
  {
    MY_CXT_CLONE;
    PERL_UNUSED_VAR(items);
  }

#endif

SV *
error(...)
  CODE:
    PERL_UNUSED_VAR(items);
    RETVAL = SvREFCNT_inc(pwp_last_error(aTHX));
  OUTPUT:
    RETVAL

const char *
core_version(...)
  CODE:
    PERL_UNUSED_VAR(items);
    RETVAL = pw_version();
  OUTPUT:
    RETVAL

INCLUDE: xs/atomic.xs
INCLUDE: xs/fd.xs

INCLUDE: xs/fd_more.xs
