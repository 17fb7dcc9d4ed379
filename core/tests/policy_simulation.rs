//! What the adaptive machines are for, shown in time that is driven: overload, a retry storm, a brown-out. The plots are in
//! docs/simulations; `RESIL_POLICY=write` writes them anew.

mod policy_simulation {
    mod brownout;
    mod overload;
    mod plot;
    mod random;
    mod storm;
}
