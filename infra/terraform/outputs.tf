output "urls" {
  description = "Of the services that agents call."
  value       = { for service in keys(local.public) : service => google_cloud_run_v2_service.service[service].uri }
}

output "topics" {
  description = "Where agents publish."
  value       = [for topic in local.agent_topics : google_pubsub_topic.topic[topic].id]
}

output "migrate" {
  description = "Brings the database up to date; run it after each apply."
  value       = "gcloud run jobs execute ${google_cloud_run_v2_job.migrate.name} --project ${var.project} --region ${var.region} --wait"
}
