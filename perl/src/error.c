/* Failures: $!, what Pipework::error() says, and exceptions. */
#include "pwperl.h"
#include "context.h"

SV *pwp_error_text(pTHX_ const pw_error *error) {
    char text[512];
    size_t len = pw_error_text(error, text, sizeof text);
    return newSVpvn_flags(text, len < sizeof text ? len : sizeof text - 1, SVs_TEMP);
}

static int errno_of(const pw_error *error) {
    return error->os > 0 ? error->os : pw_status_errno(error->kind);
}

void pwp_failed(pTHX_ const pw_error *error) {
    pwp_context *context = pwp_get_context(aTHX);
    context->last = *error;
    errno = errno_of(error);
}

SV *pwp_last_error(pTHX) {
    pwp_context *context = pwp_get_context(aTHX);
    SV *both;
    if (context->last.kind == PW_OK) return sv_2mortal(newSVpvs(""));
    both = pwp_error_text(aTHX_ &context->last);
    SvUPGRADE(both, SVt_PVIV);
    SvIV_set(both, context->last.kind);
    SvIOK_on(both);
    return both;
}

SV *pwp_exception(pTHX_ const pw_error *error) {
    HV *fields = newHV();
    SV *exception = sv_2mortal(newRV_noinc((SV *)fields));
    pwp_failed(aTHX_ error);
    (void)hv_stores(fields, "kind", newSViv(error->kind));
    (void)hv_stores(fields, "op", newSVpv(error->op, 0));
    (void)hv_stores(fields, "errno", newSViv(errno_of(error)));
    (void)hv_stores(fields, "done", newSVuv(error->done));
    (void)hv_stores(fields, "text", SvREFCNT_inc(pwp_error_text(aTHX_ error)));
    sv_bless(exception, gv_stashpvs("Pipework::Error", GV_ADD));
    return exception;
}

void pwp_throw(pTHX_ const pw_error *error) {
    croak_sv(pwp_exception(aTHX_ error));
}
