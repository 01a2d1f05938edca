/* What each interpreter has of its own. */
#ifndef PWP_CONTEXT_H
#define PWP_CONTEXT_H

typedef struct pwp_context {
    /* The last failure; its kind is PW_OK before the first. */
    pw_error last;
    /* Why the other side gave up, if it said so with the last failure. */
    pw_buffer reason;
    /* For what is received; its bytes last until Perl code runs. */
    pw_buffer scratch;
} pwp_context;

/* In Pipework.xs, where Perl's macros for it belong. */
pwp_context *pwp_get_context(pTHX);

#endif
