#include "src/pwperl.h"
#include "src/atomic.h"
#include "src/fd.h"
#include "src/pipe.h"
#include "src/reqrep.h"

#define MY_CXT_KEY "Pipework::_guts"
typedef pwp_context my_cxt_t;
START_MY_CXT

pwp_context *pwp_get_context(pTHX) {
    dMY_CXT;
    return &MY_CXT;
}

static void free_context(pTHX_ void *none) {
    dMY_CXT;
    PERL_UNUSED_VAR(none);
    pwk_buffer_free(&MY_CXT.reason);
    pwk_buffer_free(&MY_CXT.scratch);
}

MODULE = Pipework    PACKAGE = Pipework

PROTOTYPES: DISABLE

TYPEMAP: <<END
pwp_object T_PWP_OBJECT
pwp_held T_PWP_HELD
INPUT
T_PWP_OBJECT
	$var = pwp_self(aTHX_ ax, items)
T_PWP_HELD
	$var = (pwp_hold(aTHX_ ax, items), $arg)
END

BOOT:
{
    MY_CXT_INIT;
    Zero(&MY_CXT, 1, my_cxt_t);
    call_atexit(free_context, NULL);
    pwp_set_interrupt_hook(aTHX);
    if (pwk_abi() != PWK_ABI) croak("Pipework was built for another version of its C library");
}

#ifdef USE_ITHREADS

void
CLONE(...)
  CODE:
  {
    MY_CXT_CLONE;
    /* The failures of another thread are none of this one. */
    Zero(&MY_CXT, 1, my_cxt_t);
    call_atexit(free_context, NULL);
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

SV *
reason(...)
  CODE:
    PERL_UNUSED_VAR(items);
    RETVAL = SvREFCNT_inc(pwp_last_reason(aTHX));
    if (!RETVAL) XSRETURN_UNDEF;
  OUTPUT:
    RETVAL

const char *
core_version(...)
  CODE:
    PERL_UNUSED_VAR(items);
    RETVAL = pwk_version();
  OUTPUT:
    RETVAL

INCLUDE: xs/atomic.xs
INCLUDE: xs/fd.xs
INCLUDE: xs/pipe.xs
INCLUDE: xs/reqrep.xs
