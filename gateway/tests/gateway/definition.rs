//! The definitions are as `buf lint` wants them (`proto/buf.yaml`: STANDARD and COMMENTS), also where there is no buf.
//! What a compiler refuses anyway is not looked at.

use std::collections::HashSet;

use prost::Message;
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FileDescriptorProto, FileDescriptorSet, ServiceDescriptorProto,
};
use resil_gateway::proto::DESCRIPTORS;

/// What is wrong with one file.
struct Lint<'a> {
    /// The places that have a comment.
    commented: HashSet<&'a [i32]>,
    faults: Vec<String>,
}

fn is_pascal(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_uppercase()) && name.chars().all(|each| each.is_ascii_alphanumeric())
}

fn is_snake(name: &str) -> bool {
    let fits = |each: char| each.is_ascii_lowercase() || each.is_ascii_digit() || each == '_';
    name.starts_with(|first: char| first.is_ascii_lowercase()) && name.chars().all(fits) && !name.contains("__")
}

/// `CircuitState` as `CIRCUIT_STATE`.
fn screaming(name: &str) -> String {
    let mut text = String::new();
    for (at, each) in name.chars().enumerate() {
        if at > 0 && each.is_ascii_uppercase() {
            text.push('_');
        }
        text.push(each.to_ascii_uppercase());
    }
    text
}

fn below(path: &[i32], field: i32, at: usize) -> Vec<i32> {
    [path, &[field, i32::try_from(at).expect("few")]].concat()
}

impl Lint<'_> {
    fn expect(&mut self, is_so: bool, what: &str, name: &str) {
        if !is_so {
            self.faults.push(format!("{name}: {what}"));
        }
    }

    fn comment(&mut self, path: &[i32], name: &str) {
        let has_one = self.commented.contains(path);
        self.expect(has_one, "has no comment", name);
    }

    fn message(&mut self, path: &[i32], message: &DescriptorProto) {
        // What a map is made of.
        if message.options.as_ref().is_some_and(|options| options.map_entry()) {
            return;
        }
        self.comment(path, message.name());
        self.expect(is_pascal(message.name()), "is not PascalCase", message.name());
        for (at, field) in message.field.iter().enumerate() {
            let name = format!("{}.{}", message.name(), field.name());
            self.comment(&below(path, 2, at), &name);
            self.expect(is_snake(field.name()), "is not lower_snake_case", &name);
        }
        let made_up: HashSet<i32> = message
            .field
            .iter()
            .filter(|field| field.proto3_optional())
            .filter_map(|field| field.oneof_index)
            .collect();
        for (at, choice) in message.oneof_decl.iter().enumerate() {
            if !made_up.contains(&i32::try_from(at).expect("few")) {
                self.comment(&below(path, 8, at), &format!("{}.{}", message.name(), choice.name()));
            }
        }
        for (at, inner) in message.nested_type.iter().enumerate() {
            self.message(&below(path, 3, at), inner);
        }
        for (at, inner) in message.enum_type.iter().enumerate() {
            self.choices(&below(path, 4, at), inner);
        }
    }

    fn choices(&mut self, path: &[i32], choices: &EnumDescriptorProto) {
        self.comment(path, choices.name());
        let prefix = screaming(choices.name());
        for (at, value) in choices.value.iter().enumerate() {
            self.comment(&below(path, 2, at), value.name());
            self.expect(
                value.name().starts_with(&format!("{prefix}_")),
                "has not the prefix of its enum",
                value.name(),
            );
        }
        let zero = choices.value.iter().find(|value| value.number() == 0).map(|value| value.name().to_owned());
        self.expect(zero == Some(format!("{prefix}_UNSPECIFIED")), "has a meaning at zero", choices.name());
    }

    fn service(&mut self, path: &[i32], package: &str, service: &ServiceDescriptorProto, used: &mut HashSet<String>) {
        self.comment(path, service.name());
        self.expect(service.name().ends_with("Service"), "does not end in Service", service.name());
        for (at, method) in service.method.iter().enumerate() {
            self.comment(&below(path, 2, at), method.name());
            for (is, suffix) in [(method.input_type(), "Request"), (method.output_type(), "Response")] {
                let own = format!(".{package}.{}{suffix}", method.name());
                self.expect(is == own && used.insert(own), "is not of its method alone", is);
            }
        }
    }
}

fn lint(file: &FileDescriptorProto) -> Vec<String> {
    let locations = file.source_code_info.as_ref().map_or(&[][..], |info| &info.location);
    let commented = locations.iter().filter(|location| !location.leading_comments().trim().is_empty());
    let mut lint = Lint { commented: commented.map(|location| &location.path[..]).collect(), faults: Vec::new() };
    let (folder, name) = file.name().rsplit_once('/').expect("a folder");
    lint.expect(folder == file.package().replace('.', "/"), "is not in the folder of its package", file.name());
    lint.expect(file.package().ends_with(".v1"), "has a package without a version", file.name());
    lint.expect(name.strip_suffix(".proto").is_some_and(is_snake), "is not lower_snake_case", file.name());
    file.message_type.iter().enumerate().for_each(|(at, message)| lint.message(&below(&[], 4, at), message));
    file.enum_type.iter().enumerate().for_each(|(at, choices)| lint.choices(&below(&[], 5, at), choices));
    let mut used = HashSet::new();
    for (at, service) in file.service.iter().enumerate() {
        lint.service(&below(&[], 6, at), file.package(), service, &mut used);
    }
    lint.faults
}

#[test]
fn the_definitions_are_as_buf_wants_them() {
    let files = FileDescriptorSet::decode(DESCRIPTORS).expect("descriptors").file;
    let ours: Vec<_> = files.iter().filter(|file| file.package().starts_with("resil.")).collect();
    assert_eq!(ours.len(), 2, "the service, and the example");
    for file in ours {
        assert_eq!(lint(file), Vec::<String>::new(), "{}", file.name());
    }
    // It sees what is wrong: the same without comments, in another folder.
    let mut wrong = files.iter().find(|file| file.package() == "resil.v1").expect("the service").clone();
    let elements = lint(&FileDescriptorProto { source_code_info: None, ..wrong.clone() }).len();
    wrong.name = Some("elsewhere/Service.proto".to_owned());
    wrong.enum_type[0].value[0].name = Some("NORMAL".to_owned());
    wrong.service[0].method[0].output_type = Some(".resil.v1.GrpcReply".to_owned());
    let faults = lint(&wrong);
    assert!(elements > 100 && faults.len() == 5, "{elements} places without a comment, then {faults:?}");
}
