//! What every layer of this module has, said once: its two constructors, and that it makes a [`Guarded`](super::Guarded).

/// `layer!(Name<own; later = Nothing>, "what more there is to say", (field: Type, ...) { rest: value })`.
///
/// `own` are the parameters that the constructors are given, `later` those that a method sets, with what they are until then;
/// the last parameter of every layer is its nesting. A closure that is told requests has its bound at the end:
/// `<Req> where K: Fn(&Req) -> ...`.
macro_rules! layer {
    (
        $layer:ident<$($own:ident),*; $($later:ident = $default:ty),*>, $note:literal,
        ($($field:ident: $type:ty),*) { $($rest:ident: $value:expr),* } $(<$req:ident> where $($bound:tt)+)?
    ) => {
        impl<$($own),*> $layer<$($own,)* $($default,)* $crate::tower::Innermost> {
            #[doc = concat!("Directly around a service with errors of its own", $note)]
            pub fn new$(<$req>)?($($field: $type),*) -> Self $(where $($bound)+)? {
                Self { $($field,)* $($rest: $value,)* nesting: ::std::marker::PhantomData }
            }
        }

        impl<$($own),*> $layer<$($own,)* $($default,)* $crate::tower::Around> {
            #[doc = concat!("Around another layer of this module", $note)]
            pub fn around$(<$req>)?($($field: $type),*) -> Self $(where $($bound)+)? {
                Self { $($field,)* $($rest: $value,)* nesting: ::std::marker::PhantomData }
            }
        }

        impl<S, $($own,)* $($later,)* N> ::tower_layer::Layer<S> for $layer<$($own,)* $($later,)* N>
        where
            Self: Clone,
        {
            type Service = $crate::tower::Guarded<S, Self>;

            fn layer(&self, service: S) -> Self::Service {
                $crate::tower::Guarded::new(service, self.clone())
            }
        }
    };
}

/// `judges_answers!(Name, policy)`: a layer around one policy that can be told which answers are failures.
macro_rules! judges_answers {
    ($layer:ident, $policy:ident) => {
        impl<C, R, N> $layer<C, R, N> {
            /// Which answers are failures, too: `|response: &Response| Option<Class>`.
            pub fn classify_response<Res, F>(self, responses: F) -> $layer<C, F, N>
            where
                F: Fn(&Res) -> Option<$crate::policy::Class>,
            {
                let Self { $policy, classify, .. } = self;
                $layer { $policy, classify, responses, nesting: ::std::marker::PhantomData }
            }
        }
    };
}

pub(super) use {judges_answers, layer};
