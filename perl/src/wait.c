/* The one wait: the library's, and Perl's signal handlers when it has returned. */
#include "pwperl.h"

/*
 * Whether a wait of the library goes on; asked in the thread that waits. A handler may die, so it
 * does not run here.
 */
static bool go_on(void) {
    dTHX;
#ifdef MULTIPLICITY
    /* It is no thread of Perl's. */
    if (!aTHX) return true;
#endif
    return !PL_sig_pending || pwp_get_context(aTHX)->is_freeing;
}

void pwp_set_interrupt_hook(pTHX) {
    PERL_UNUSED_CONTEXT;
    /* Another interpreter of this process may have been first. */
    (void)pwk_set_interrupt_hook(go_on, NULL);
}

pwk_status pwp_wait(pTHX_ SV **self, pwp_attempt attempt, void *arguments, pwk_deadline deadline,
                    pwk_error *error) {
    for (;;) {
        pwk_status status = attempt(aTHX_ arguments, deadline, error);
        if (status != PWK_INTERRUPTED) return status;
        if (LIKELY(!PL_sig_pending)) continue;
        if (self) *self = pwp_pin(aTHX_ *self);
        self = NULL;
        PERL_ASYNC_CHECK();
    }
}

NV pwp_seconds(pTHX_ SV *seconds) {
    NV wanted;
    if (!seconds) return -1;
    seconds = pwp_number(aTHX_ seconds);
    if (!SvOK(seconds)) return -1;
    wanted = pwp_real(aTHX_ seconds);
    /* A century is for ever, and more nanoseconds than that do not fit. */
    return wanted >= 0 && wanted < 3.15e9 ? wanted : -1;
}

pwk_deadline pwp_deadline_in(NV seconds) {
    return seconds < 0 ? PWK_NEVER : pwk_in_ns((int64_t)(seconds * 1e9));
}

pwk_deadline pwp_deadline(pTHX_ SV *seconds) {
    return pwp_deadline_in(pwp_seconds(aTHX_ seconds));
}
