resource "google_pubsub_topic" "topic" {
  for_each   = local.topics
  name       = "${var.topic_prefix}${each.value}"
  depends_on = [google_project_service.api]
}

resource "google_pubsub_subscription" "push" {
  for_each             = local.subscriptions
  name                 = "${var.topic_prefix}${each.key}"
  topic                = google_pubsub_topic.topic[each.value.topic].id
  filter               = each.value.filter
  ack_deadline_seconds = each.value.ack_deadline_s

  message_retention_duration = "${local.delivery.retention_days * 86400}s"

  push_config {
    push_endpoint = "${google_cloud_run_v2_service.service[each.value.service].uri}${each.value.path}"
    oidc_token {
      service_account_email = google_service_account.invoker.email
      audience              = google_cloud_run_v2_service.service[each.value.service].uri
    }
  }

  dead_letter_policy {
    dead_letter_topic     = google_pubsub_topic.topic[each.value.dead_letter_topic].id
    max_delivery_attempts = local.delivery.max_delivery_attempts
  }

  retry_policy {
    minimum_backoff = "${local.delivery.minimum_backoff_s}s"
    maximum_backoff = "${local.delivery.maximum_backoff_s}s"
  }

  expiration_policy {
    ttl = ""
  }

  depends_on = [
    google_cloud_run_v2_service_iam_member.push,
    google_service_account_iam_member.pubsub_signs_as_invoker,
  ]
}

# Tells the recorder of each dead letter. What it cannot take is delivered again until the retention ends: dead letters
# of its own would come back to it.
resource "google_pubsub_subscription" "recording" {
  for_each             = local.recordings
  name                 = "${var.topic_prefix}${each.key}"
  topic                = google_pubsub_topic.topic[each.value.topic].id
  ack_deadline_seconds = each.value.ack_deadline_s

  message_retention_duration = "${local.delivery.retention_days * 86400}s"

  push_config {
    push_endpoint = "${google_cloud_run_v2_service.service[each.value.service].uri}${each.value.path}"
    oidc_token {
      service_account_email = google_service_account.invoker.email
      audience              = google_cloud_run_v2_service.service[each.value.service].uri
    }
  }

  retry_policy {
    minimum_backoff = "${local.delivery.minimum_backoff_s}s"
    maximum_backoff = "${local.delivery.maximum_backoff_s}s"
  }

  expiration_policy {
    ttl = ""
  }

  depends_on = [
    google_cloud_run_v2_service_iam_member.push,
    google_service_account_iam_member.pubsub_signs_as_invoker,
  ]
}

# A dead-letter topic without a subscription loses what it is given. `lamina dlq` pulls from these.
resource "google_pubsub_subscription" "dead_letter" {
  for_each             = local.dead_letters
  name                 = "${var.topic_prefix}${each.value}"
  topic                = google_pubsub_topic.topic[each.value].id
  ack_deadline_seconds = 60

  message_retention_duration = "${local.delivery.retention_days * 86400}s"

  expiration_policy {
    ttl = ""
  }
}

# Pub/Sub moves dead letters by itself, and counts attempts only where it may.
locals {
  pubsub_agent = "serviceAccount:service-${data.google_project.this.number}@gcp-sa-pubsub.iam.gserviceaccount.com"
}

resource "google_pubsub_topic_iam_member" "pubsub_dead_letters" {
  for_each = local.dead_letters
  topic    = google_pubsub_topic.topic[each.value].id
  role     = "roles/pubsub.publisher"
  member   = local.pubsub_agent
}

resource "google_pubsub_subscription_iam_member" "pubsub_dead_letters" {
  for_each     = local.subscriptions
  subscription = google_pubsub_subscription.push[each.key].id
  role         = "roles/pubsub.subscriber"
  member       = local.pubsub_agent
}

resource "google_service_account_iam_member" "pubsub_signs_as_invoker" {
  service_account_id = google_service_account.invoker.name
  role               = "roles/iam.serviceAccountTokenCreator"
  member             = local.pubsub_agent
  depends_on         = [google_pubsub_topic.topic]
}
