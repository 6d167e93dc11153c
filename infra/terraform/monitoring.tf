locals {
  pushed = join(", ", [
    for each in concat(values(google_pubsub_subscription.push), values(google_pubsub_subscription.recording)) :
    "\"${each.name}\""
  ])
  parked = join(", ", [for each in google_pubsub_subscription.dead_letter : "\"${each.name}\""])

  alerts = {
    "dead letters" = {
      metric       = "dead_letter_message_count"
      subscription = local.pushed
      above        = 0
      aligner      = "ALIGN_DELTA"
      for_s        = 0
      remedy       = "Pub/Sub gave up on a message after its last attempt. `lamina dlq list` shows it."
    }
    "parked messages" = {
      metric       = "num_undelivered_messages"
      subscription = local.parked
      above        = 0
      aligner      = "ALIGN_MAX"
      for_s        = 0
      remedy       = "Messages wait in a dead-letter topic. `lamina dlq show` gives the reason; mend it, then replay or purge: they are kept ${local.delivery.retention_days} days."
    }
    "backlog" = {
      metric       = "num_undelivered_messages"
      subscription = local.pushed
      above        = var.backlog_alert_messages
      aligner      = "ALIGN_MAX"
      for_s        = 600
      remedy       = "A worker does not keep up. Look for retries in its log, then at its instances and at AlloyDB."
    }
    "old messages" = {
      metric       = "oldest_unacked_message_age"
      subscription = local.pushed
      above        = var.backlog_alert_seconds
      aligner      = "ALIGN_MAX"
      for_s        = 300
      remedy       = "A message is being retried for long: memory lags behind. The worker's log names what it waits for."
    }
  }
}

resource "google_monitoring_alert_policy" "pubsub" {
  for_each              = local.alerts
  display_name          = "${var.name}: ${each.key}"
  combiner              = "OR"
  notification_channels = var.notification_channels

  conditions {
    display_name = each.value.metric
    condition_threshold {
      filter = join(" AND ", [
        "resource.type = \"pubsub_subscription\"",
        "metric.type = \"pubsub.googleapis.com/subscription/${each.value.metric}\"",
        "resource.labels.subscription_id = one_of(${each.value.subscription})",
      ])
      comparison      = "COMPARISON_GT"
      threshold_value = each.value.above
      duration        = "${each.value.for_s}s"
      aggregations {
        alignment_period   = "60s"
        per_series_aligner = each.value.aligner
      }
    }
  }

  documentation {
    content   = each.value.remedy
    mime_type = "text/markdown"
  }
}
