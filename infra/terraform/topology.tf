# What the library, the local stack and the CLI read as well. Nothing here knows a topic by name.

locals {
  topology = jsondecode(file("${path.module}/../../shared/lamina/topology.json"))
  services = local.topology.services
  delivery = local.topology.delivery
  schedule = local.topology.schedule

  # As lamina.topology.Subscription has it.
  subscriptions = {
    for each in local.topology.subscriptions : each.name => merge(each, {
      dead_letter_topic = "${each.name}.dead"
      path              = "/push/${each.name}"
      filter            = "NOT attributes:replay_to OR attributes.replay_to = \"${each.name}\""
    })
  }
  subscriptions_of = {
    for service in keys(local.services) :
    service => [for each in values(local.subscriptions) : each if each.service == service]
  }
  dead_letters = toset([for each in values(local.subscriptions) : each.dead_letter_topic])

  # As lamina.topology.Recording has it: the recorder of dead letters keeps their index.
  recordings = {
    for topic in local.dead_letters : "${topic}.recorder" => merge(local.topology.dead_letters, {
      topic = topic
      path  = "/push/${topic}.recorder"
    })
  }
  topics = setunion(local.topology.topics, local.dead_letters)

  # A service publishes what it is said to, and parks what it cannot process.
  publishers = {
    for each in flatten([
      for service, it in local.services : [
        for topic in concat(
          lookup(it, "publishes", []),
          local.subscriptions_of[service][*].dead_letter_topic,
        ) : { service = service, topic = topic }
      ]
    ]) : "${each.service} ${each.topic}" => each
  }

  public = { for service, it in local.services : service => it if lookup(it, "public", false) }
  uses = {
    for dependency in ["valkey", "database", "model"] : dependency => toset([
      for service, it in local.services : service if contains(lookup(it, "uses", []), dependency)
    ])
  }

  # Agents publish where the services that they may also call subscribe.
  agent_topics = toset([for each in values(local.subscriptions) : each.topic if contains(keys(local.public), each.service)])

  # As lamina.postgres.migrate.ROLES has it.
  database_roles = { for service in local.uses.database : service => "lamina_${replace(service, "-", "_")}" }

  # A push waits no longer than the ack deadline; a service that takes no pushes answers within seconds.
  timeout_s = {
    for service, theirs in local.subscriptions_of : service => max(30, theirs[*].ack_deadline_s...)
  }

  # The tick in CloudEvents' binary mode. A scheduler's message is always the same, so it cannot say when it is
  # due: the time it was published does.
  tick = {
    data = "{}"
    attributes = {
      "ce-specversion" = "1.0"
      "ce-id"          = "tick"
      "ce-source"      = "//cloudscheduler.googleapis.com/${var.name}"
      "ce-type"        = "lamina.${local.schedule.topic}.v1"
      "content-type"   = "application/json"
    }
  }
}
